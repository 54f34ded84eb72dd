package routes_test

import (
	"fmt"
	"log"

	"github.com/reqlock/reqlock/guard/routes"
)

// A program opens a file with FromFile of its adapter. Parse checks one, such as in a test of the
// files that operators write.
func Example() {
	const file = `{"routes": [
		{"method": "POST", "pattern": "/orders/{id}/pay", "key": "order:{path.id}", "wait": "2s"}
	]}`
	rows, err := routes.Parse("locks.json", []byte(file), routes.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(row.Method, row.Pattern, row.Guard.WaitTime)
	}

	const wrong = `{"routes": [
		{"method": "POST", "pattern": "/orders/{id}/pay", "key": "order:{path.id}", "wait": "a while"}
	]}`
	_, err = routes.Parse("locks.json", []byte(wrong), routes.Options{})
	fmt.Println(err)
	// Output:
	// POST /orders/{id}/pay 2s
	// reqlock: routes: locks.json:2:87: wait is "a while"; want a duration such as 2s or 1m30s
}
