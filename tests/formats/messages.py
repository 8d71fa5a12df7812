"""Message classes, as protoc generates them: of files that are parsed here."""

from google.protobuf import message_factory, timestamp_pb2  # noqa: F401 - imported by a file below.
from google.protobuf.descriptor_pool import Default

from streams.registry.protobuf_text import parse

CUSTOMER = """
syntax = "proto3";
package shop;
message Address { string city = 1; }
message Customer {
  string name = 1;
  Address address = 2;
}
"""
ORDER = """
syntax = "proto3";
package shop;
import "shop/customer.proto";
import "google/protobuf/timestamp.proto";
enum State { NEW = 0; PAID = 1; }
message First { int32 n = 1; }
message Order {
  string id = 1;
  int64 cents = 2;
  Customer customer = 3;
  google.protobuf.Timestamp at = 4;
  repeated Line lines = 5;
  map<string, int32> counts = 6;
  State state = 7;
  optional string note = 8;
  message Line { string sku = 1; int32 count = 2; }
}
"""


def _file(name: str, text: str):
    file = parse(text)
    file.name = name
    Default().AddSerializedFile(file.SerializeToString())
    return Default().FindFileByName(name)


_customer = _file("shop/customer.proto", CUSTOMER)
_order = _file("shop/order.proto", ORDER)


def _class(descriptor):
    cls = message_factory.GetMessageClass(descriptor)
    cls.__module__ = __name__
    return cls


Customer = _class(_customer.message_types_by_name["Customer"])
First = _class(_order.message_types_by_name["First"])
Order = _class(_order.message_types_by_name["Order"])
Line = _class(_order.message_types_by_name["Order"].nested_types_by_name["Line"])
