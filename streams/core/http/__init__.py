"""What the HTTP servers of this library share."""
