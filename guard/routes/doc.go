// Package routes reads a table of routes from a file: which routes take which lock, which are
// idempotent, and which share the answer of one run. Operators change it without a build.
//
//	{
//	  "routes": [
//	    {"method": "POST", "pattern": "/orders/{id}/pay", "key": "order:{path.id}", "wait": "2s"},
//	    {"method": "POST", "pattern": "/payments", "idempotency": {"scope": "{user}", "ttl": "24h"}},
//	    {"method": "GET", "pattern": "/report", "coalesce": {"user": "everyone", "keep": "2s"}}
//	  ]
//	}
//
// FromFile of each adapter makes a middleware of such a file, and loads it again when it changes.
// This package has what they share: the types ([Table], [Route]), the parser with its errors
// ([Parse]), and the file ([Open]). docs/guides/config.md describes every field, and schema.json,
// the JSON Schema, tells them to editors.
//
// A file is JSON. Package routes/yaml reads YAML, and is apart so that only those who import it
// compile a YAML parser: set Options.Format to yaml.Format.
//
// A mistake in a file is an [Error] with its line and column; Parse reports all of them at once.
package routes
