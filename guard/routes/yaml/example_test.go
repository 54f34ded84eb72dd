package yaml_test

import (
	"fmt"
	"log"

	"github.com/reqlock/reqlock/guard/routes"
	"github.com/reqlock/reqlock/guard/routes/yaml"
)

func Example() {
	const file = `
routes:
  - method: POST
    pattern: /orders/{id}/pay
    key: "order:{path.id}"
    wait: 2s
`
	rows, err := routes.Parse("locks.yaml", []byte(file), routes.Options{Format: yaml.Format})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(row.Method, row.Pattern, row.Guard.WaitTime)
	}
	// Output: POST /orders/{id}/pay 2s
}
