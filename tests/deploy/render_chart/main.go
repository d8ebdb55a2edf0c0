// Renders a chart with what Helm renders with, Go's templates and the functions of Sprig. It is not
// Helm: of Helm's own functions it has toYaml, and of its objects Values, Release and Chart.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run main.go CHART NAMESPACE TEMPLATE [VALUES]
//
// VALUES is YAML, as the file that `helm --values` takes: it goes before the chart's own.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	check(err)
	values := map[string]interface{}{}
	check(yaml.Unmarshal(text, &values))
	return values
}

func merge(into, from map[string]interface{}) {
	for name, value := range from {
		section, isSection := value.(map[string]interface{})
		own, hasSection := into[name].(map[string]interface{})
		if isSection && hasSection {
			merge(own, section)
		} else {
			into[name] = value
		}
	}
}

func main() {
	chart := os.Args[1]
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		check(err)
		return strings.TrimSuffix(string(text), "\n")
	}
	values := read(filepath.Join(chart, "values.yaml"))
	if len(os.Args) > 4 {
		given := map[string]interface{}{}
		check(yaml.Unmarshal([]byte(os.Args[4]), &given))
		merge(values, given)
	}
	path := filepath.Join(chart, "templates", os.Args[3])
	parsed, err := template.New(os.Args[3]).Option("missingkey=error").Funcs(functions).ParseFiles(path)
	check(err)
	check(parsed.Execute(os.Stdout, map[string]interface{}{
		"Values":  values,
		"Chart":   read(filepath.Join(chart, "Chart.yaml")),
		"Release": map[string]interface{}{"Namespace": os.Args[2], "Name": "seqpoint"},
	}))
}
