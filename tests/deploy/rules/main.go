// Checks a file of Prometheus alert rules as promtool does: expressions, templates, fields.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/prometheus/model/rulefmt"
)

func main() {
	_, errs := rulefmt.ParseFile(os.Args[1])
	for _, err := range errs {
		fmt.Println(err)
	}
	if len(errs) > 0 {
		os.Exit(1)
	}
}
