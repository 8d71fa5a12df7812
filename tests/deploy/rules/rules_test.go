// Package rules checks Prometheus alert rules as promtool does, which cannot be installed as a module.
package rules

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// Parses the file RULES_FILE: expressions, templates, fields.
func TestFile(t *testing.T) {
	_, errs := rulefmt.ParseFile(os.Getenv("RULES_FILE"))
	for _, err := range errs {
		t.Error(err)
	}
}

// Evaluates the expressions of the script RULES_FILE on its series.
func TestScript(t *testing.T) {
	script, err := os.ReadFile(os.Getenv("RULES_FILE"))
	if err != nil {
		t.Fatal(err)
	}
	promqltest.RunTest(t, string(script), promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true,
	}))
}
