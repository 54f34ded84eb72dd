package routes

import "encoding/json"

// Schema returns the JSON Schema of files, which is schema.json.
func Schema() ([]byte, error) {
	schema := objectSchema("Locks of routes", tableFields)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["$defs"] = map[string]any{
		"route":       objectSchema("How the requests of a route are guarded", routeFields),
		"idempotency": objectSchema("How the requests of a route are idempotent", idempotencyFields),
		"coalesce":    objectSchema("Which requests of a route share the answer of one run", coalesceFields),
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	return append(text, '\n'), err
}

func objectSchema[T any](title string, fields []field[T]) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fields {
		property := map[string]any{"description": f.about}
		for name, value := range f.schema {
			property[name] = value
		}
		properties[f.name] = property
		if f.required {
			required = append(required, f.name)
		}
	}
	return map[string]any{"title": title, "type": "object", "properties": properties, "required": required, "additionalProperties": false}
}
