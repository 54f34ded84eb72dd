package routes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// A Format parses a file into a tree of nodes. Its error is an Error.
type Format func(src []byte) (*Node, error)

// Kind is the kind of a Node.
type Kind int

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	String
	List
	Object
)

// String returns what a person calls the kind, such as "a list".
func (k Kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "a text", "a list", "an object"}[k]
}

// A Node is a value in a file.
type Node struct {
	Place
	Kind Kind
	// A Bool, a Number and a String have a Text.
	Text string
	// A List has Items.
	Items []*Node
	// An Object has Members, in the order of the file.
	Members []Member
}

// A Member is a name of an Object and its value.
type Member struct {
	Place
	Name  string
	Value *Node
}

// A Place is a place in a file, in characters, from 1.
type Place struct{ Line, Column int }

// An Error is a mistake in a file.
type Error struct {
	File string // "": unknown
	Place
	// Text says what is wrong, and what would be right.
	Text string
}

func (e *Error) Error() string {
	return fmt.Sprintf("reqlock: routes: %s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// errorAt returns an Error at a place.
func errorAt(at Place, format string, args ...any) *Error {
	return &Error{Place: at, Text: fmt.Sprintf(format, args...)}
}

// JSON is the Format of JSON files.
func JSON(src []byte) (*Node, error) {
	p := &jsonParser{src: src, in: json.NewDecoder(bytes.NewReader(src))}
	p.in.UseNumber()
	node, err := p.value()
	if err != nil {
		return nil, p.mistake(err)
	}
	if at := p.next(); at < len(src) {
		return nil, errorAt(p.place(at), "there is something behind the end of the object; want a single object")
	}
	return node, nil
}

type jsonParser struct {
	src []byte
	in  *json.Decoder
}

// next returns where the next token begins.
func (p *jsonParser) next() int {
	at := int(p.in.InputOffset())
	for at < len(p.src) && bytes.IndexByte([]byte(" \t\r\n,:"), p.src[at]) >= 0 {
		at++
	}
	return at
}

// place returns the place of a byte.
func (p *jsonParser) place(at int) Place {
	before := p.src[:min(at, len(p.src))]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return Place{Line: bytes.Count(before, []byte("\n")) + 1, Column: utf8.RuneCount(before[begin:]) + 1}
}

func (p *jsonParser) value() (*Node, error) {
	node := &Node{Place: p.place(p.next())}
	token, err := p.in.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			node.Kind = List
			return node, p.list(node)
		}
		node.Kind = Object
		return node, p.object(node)
	case bool:
		node.Kind, node.Text = Bool, fmt.Sprint(token)
	case json.Number:
		node.Kind, node.Text = Number, token.String()
	case string:
		node.Kind, node.Text = String, token
	}
	return node, nil
}

func (p *jsonParser) list(node *Node) error {
	for p.in.More() {
		item, err := p.value()
		if err != nil {
			return err
		}
		node.Items = append(node.Items, item)
	}
	_, err := p.in.Token()
	return err
}

func (p *jsonParser) object(node *Node) error {
	for p.in.More() {
		member := Member{Place: p.place(p.next())}
		name, err := p.in.Token()
		if err != nil {
			return err
		}
		member.Name, _ = name.(string) // the decoder refuses others
		if member.Value, err = p.value(); err != nil {
			return err
		}
		node.Members = append(node.Members, member)
	}
	_, err := p.in.Token()
	return err
}

// mistake gives an error of the decoder its place.
func (p *jsonParser) mistake(err error) error {
	var syntax *json.SyntaxError
	at := len(p.src)
	switch {
	case errors.As(err, &syntax):
		at = max(int(syntax.Offset)-1, 0) // Offset is behind the byte.
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errorAt(p.place(at), "the file ends before its object; want {\"routes\": [...]}")
	}
	return errorAt(p.place(at), "not JSON: %v", err)
}
