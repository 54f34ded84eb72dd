// Package yaml reads the files of package routes as YAML. Only programs that import it compile a
// YAML parser.
package yaml

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/reqlock/reqlock/guard/routes"
)

// Format is the routes.Format of YAML files. A file is one document without anchors, aliases, tags
// and merges: a reader of a table of locks must see what it says.
func Format(src []byte) (*routes.Node, error) {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, syntaxError(err)
	}
	var bodies []ast.Node
	for _, document := range file.Docs {
		if document.Body != nil {
			bodies = append(bodies, document.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return nil, &routes.Error{Place: routes.Place{Line: 1, Column: 1}, Text: "the file is empty; want routes:"}
	case 1:
		return convert(bodies[0])
	default:
		return nil, mistake(bodies[1], "a second document; want one")
	}
}

func syntaxError(err error) error {
	var syntax yaml.Error
	if errors.As(err, &syntax) && syntax.GetToken() != nil {
		at := syntax.GetToken().Position
		return &routes.Error{Place: routes.Place{Line: at.Line, Column: at.Column}, Text: "not YAML: " + syntax.GetMessage()}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return &routes.Error{Place: routes.Place{Line: 1, Column: 1}, Text: "not YAML: " + text}
}

func place(node ast.Node) routes.Place {
	at := node.GetToken().Position
	return routes.Place{Line: at.Line, Column: at.Column}
}

func mistake(node ast.Node, format string, args ...any) error {
	return &routes.Error{Place: place(node), Text: fmt.Sprintf(format, args...)}
}

func convert(node ast.Node) (*routes.Node, error) {
	out := &routes.Node{Place: place(node)}
	switch node := node.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.Kind, out.Text = routes.Bool, strconv.FormatBool(node.Value)
	case *ast.IntegerNode:
		out.Kind, out.Text = routes.Number, fmt.Sprint(node.Value)
	case *ast.FloatNode:
		out.Kind, out.Text = routes.Number, node.Token.Value
	case *ast.StringNode:
		out.Kind, out.Text = routes.String, node.Value
	case *ast.LiteralNode:
		out.Kind, out.Text = routes.String, node.Value.Value
	case *ast.SequenceNode:
		out.Kind = routes.List
		for _, value := range node.Values {
			item, err := convert(value)
			if err != nil {
				return nil, err
			}
			out.Items = append(out.Items, item)
		}
	case *ast.MappingNode:
		out.Kind = routes.Object
		for _, value := range node.Values {
			if err := add(out, value); err != nil {
				return nil, err
			}
		}
		if len(node.Values) > 0 && !node.IsFlowStyle {
			out.Place = out.Members[0].Place
		}
	case *ast.MappingValueNode:
		out.Kind = routes.Object
		if err := add(out, node); err != nil {
			return nil, err
		}
		out.Place = out.Members[0].Place
	default:
		return nil, mistake(node, "%s is not allowed here; write the value itself", strings.ToLower(node.Type().String()))
	}
	return out, nil
}

func add(object *routes.Node, node *ast.MappingValueNode) error {
	name, ok := node.Key.(*ast.StringNode)
	if !ok {
		return mistake(node.Key, "a name that is not a text; want one such as routes")
	}
	value, err := convert(node.Value)
	if err != nil {
		return err
	}
	object.Members = append(object.Members, routes.Member{Place: place(name), Name: name.Value, Value: value})
	return nil
}
