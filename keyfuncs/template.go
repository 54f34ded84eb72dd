package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Template makes a key from a text with sources in braces, such as
// "order:{path.id}:{header.X-Tenant}". It panics if [ParseTemplate] returns an error.
func Template(text string) Func {
	fn, err := ParseTemplate(text)
	if err != nil {
		panic(err.Error())
	}
	return fn
}

// ParseTemplate is [Template] for texts from outside the program, such as a configuration file. The
// error names the column, in characters from 1, and what would be right there.
//
// The sources are the functions of this package; body sources read 1 MiB at most:
//
//	{path.NAME}     PathValue(NAME)
//	{header.NAME}   Header(NAME)
//	{query.NAME}    Query(NAME)
//	{cookie.NAME}   Cookie(NAME)
//	{form.NAME}     FormValue(NAME)
//	{json.POINTER}  JSON(POINTER), such as {json./order/id}
//	{method}        Method()
//	{pattern}       Pattern()
//	{host}          Host()
//	{path}          Path()
//	{ip}            ClientIP(): behind a proxy, its address: one key for all clients
//	{body.hash}     BodyHash()
//
// A source with :uuid behind its name, such as {path.id:uuid}, is [UUID] of that source.
//
// Double a brace of the text itself. Names and pointers cannot contain braces.
//
// Requests have the same key only if all values are equal: in a value, a tilde precedes each colon,
// each tilde, and each byte that equals the first one of the text after the value. So
// {header.X-Tenant}:{path.id} is the key that Join makes of the two. There must be text between two
// values, and it cannot begin with a tilde. As in Join, the first error of a source is the result.
func ParseTemplate(text string) (Func, error) {
	return ParseTemplateWith(text, nil)
}

// ParseTemplateWith is [ParseTemplate] for hosts that have names for parts of a request themselves,
// such as Caddy's placeholders. source is asked first for each name in braces. It returns nil, nil
// for a name that it does not know, which then is one of this package; its error explains why there
// is no such source. An empty value of its Funcs is [ErrMissing], and one that contains control
// characters or invalid UTF-8 is [ErrInvalid]. nil: there are no other names.
func ParseTemplateWith(text string, source func(name string) (Func, error)) (Func, error) {
	t, err := parseTemplate(text, source)
	if err != nil {
		return nil, fmt.Errorf("reqlock: keyfuncs: Template(%q): %w", text, err)
	}
	return t.key, nil
}

// A template is the text before the first value, and the values.
//
// A key can be parsed back, which proves that no two lists of values have the same key. The text
// before the first value has a known length. A value ends at its first end byte without an escape:
// inside the value that byte is escaped, and the text after it begins with that byte, and not with
// the escape. The last value ends with the key. Then follows text of known length again, or the
// end.
type template struct {
	before string
	values []templateValue
}

type templateValue struct {
	source Func
	behind string // text up to the next value; "" only after the last one
}

func (t template) key(r *http.Request) (string, error) {
	var room [128]byte // enough for most keys
	key := append(room[:0], t.before...)
	for _, v := range t.values {
		value, err := v.source(r)
		if err != nil {
			return "", err
		}
		end := byte(separator)
		if v.behind != "" {
			end = v.behind[0]
		}
		key = append(appendEscaped(key, value, end), v.behind...)
	}
	return string(key), nil
}

func parseTemplate(text string, others func(name string) (Func, error)) (template, error) {
	if text == "" {
		return template{}, errors.New("empty; want a text such as order:{path.id}")
	}
	p := templateParser{text: text, others: others}
	for p.at < len(text) {
		if why := p.step(); why != "" {
			return template{}, fmt.Errorf("column %d: %s", utf8.RuneCountInString(text[:p.at])+1, why)
		}
	}
	return p.result, nil
}

type templateParser struct {
	text   string
	others func(name string) (Func, error) // sources of the host; nil: none
	at     int                             // the next byte; after a mistake, its place
	result template
}

// step parses one value, or one character of the text between values.
func (p *templateParser) step() (why string) {
	switch rest := p.text[p.at:]; {
	case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
		p.take(rest[:1], 2)
	case rest[0] == '{':
		return p.value(rest[1:])
	case rest[0] == '}':
		return "a closing brace without an opening one; double it if it is part of the text"
	case rest[0] == escape && p.behindValue():
		return "a tilde behind a value; put another character between them, such as a colon"
	default:
		r, size := utf8.DecodeRuneInString(rest)
		if r == utf8.RuneError && size == 1 {
			return "not valid UTF-8"
		}
		p.take(rest[:size], size)
	}
	return ""
}

// take appends to the text. written is its length in the template, where braces are doubled.
func (p *templateParser) take(text string, written int) {
	if n := len(p.result.values); n > 0 {
		p.result.values[n-1].behind += text
	} else {
		p.result.before += text
	}
	p.at += written
}

func (p *templateParser) behindValue() bool {
	n := len(p.result.values)
	return n > 0 && p.result.values[n-1].behind == ""
}

func (p *templateParser) value(rest string) (why string) {
	inside, _, closed := strings.Cut(rest, "}")
	switch {
	case !closed:
		return "the brace is not closed; double it if it is part of the text"
	case p.behindValue():
		return "a value directly behind another; put a text between them, such as a colon"
	}
	p.at++
	source, at, why := p.source(inside)
	if why != "" {
		p.at += at
		return why
	}
	p.result.values = append(p.result.values, templateValue{source: source})
	p.at += len(inside) + 1
	return ""
}

// source returns the source that the text inside braces names, or the error and the byte where it
// is.
func (p *templateParser) source(inside string) (source Func, at int, why string) {
	if i := strings.IndexByte(inside, '{'); i >= 0 {
		return nil, i, "a brace inside braces; the one before is not closed"
	}
	if name, ok := strings.CutSuffix(inside, ":uuid"); ok {
		if source, at, why = p.source(name); why != "" {
			return nil, at, why
		}
		return UUID(source), 0, ""
	}
	if p.others != nil {
		source, err := p.others(inside)
		if err != nil {
			return nil, 0, err.Error()
		}
		if source != nil {
			return checked(inside, source), 0, ""
		}
	}
	return templateSource(inside)
}

// checked holds the values of a host's source to the rules of this package. Its errors name the
// source for logs only: the host's names mean nothing to clients.
func checked(name string, source Func) Func {
	missing := fmt.Errorf("%w: {%s}", ErrMissing, name)
	invalid := fmt.Errorf("%w: {%s}", ErrInvalid, name)
	refuse := refusals{empty: missing, notUTF8: invalid, control: invalid}
	return func(r *http.Request) (string, error) {
		value, err := source(r)
		if err != nil {
			return "", err
		}
		return refuse.check(value)
	}
}

// templateSources are the sources that ParseTemplate documents, in the same order.
var templateSources = []struct {
	kind string
	// argument is what a dot and a text of the template stand for behind the kind; "": the source has
	// none.
	argument string
	whyNot   func(argument string) string
	source   func(argument string) Func
}{
	{"path", "NAME", notAWildcard, PathValue},
	{"header", "NAME", notAHeader, Header},
	{"query", "NAME", notAParameter, Query},
	{"cookie", "NAME", notACookie, Cookie},
	{"form", "NAME", notAParameter, func(name string) Func { return FormValue(name) }},
	{"json", "POINTER", notAPointer, func(pointer string) Func { return JSON(pointer) }},
	{"method", "", nil, func(string) Func { return Method() }},
	{"pattern", "", nil, func(string) Func { return Pattern() }},
	{"host", "", nil, func(string) Func { return Host() }},
	{"path", "", nil, func(string) Func { return Path() }},
	{"ip", "", nil, func(string) Func { return ClientIP() }},
	{"body.hash", "", nil, func(string) Func { return BodyHash() }},
}

// templateNames returns the sources as a template names them.
func templateNames() (names []string) {
	for _, s := range templateSources {
		name := s.kind
		if s.argument != "" {
			name += "." + s.argument
		}
		names = append(names, name)
	}
	return names
}

// templateSource returns the source of this package with that name.
func templateSource(inside string) (source Func, at int, why string) {
	kind, name, dotted := strings.Cut(inside, ".")
	for _, s := range templateSources {
		if s.argument == "" {
			if s.kind == inside {
				return s.source(""), 0, ""
			}
			continue
		}
		if s.kind != kind || !dotted {
			continue
		}
		at = len(kind) + 1
		if !utf8.ValidString(name) {
			return nil, at, "not valid UTF-8"
		}
		if why := s.whyNot(name); why != "" {
			return nil, at, fmt.Sprintf("%q: %s", name, why)
		}
		return s.source(name), 0, ""
	}
	names := templateNames()
	last := len(names) - 1
	return nil, 0, fmt.Sprintf("no source %q; want %s or %s", inside, strings.Join(names[:last], ", "), names[last])
}
