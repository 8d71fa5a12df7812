module rules

go 1.22

require github.com/prometheus/prometheus v0.54.1
