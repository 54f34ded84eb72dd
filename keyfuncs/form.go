package keyfuncs

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
)

// FormValue returns the value of a field of the form in the body, application/x-www-form-urlencoded
// or multipart/form-data, decoded. It ignores the query string, and so should the handler: use
// [http.Request.PostFormValue]. The handler reads the unchanged body. A form that was parsed before
// is used.
//
// A missing or empty field, and a request without a body, is [ErrMissing]. [ErrInvalid] is a field
// that is given more than once, even with equal values, that contains control characters or invalid
// UTF-8, or that is a file; a form that is malformed anywhere; a body of another Content-Type or
// with a Content-Encoding; and a field of a multipart form that is a parameter of the query string
// as well, because [http.Request.FormValue] would prefer that one.
//
// A body of more than 1 MiB, or of [MaxBody], is an error that matches *[http.MaxBytesError].
// Errors of reading it are returned unchanged.
//
// FormValue panics if name is empty.
func FormValue(name string, options ...BodyOption) Func {
	call := fmt.Sprintf("FormValue(%q)", name)
	if why := notAParameter(name); why != "" {
		misuse(call, why)
	}
	source := fmt.Sprintf("form field %q", name)
	f := &formField{
		name:       name,
		body:       newBodyReader(call, source, options),
		noForm:     newError(ErrInvalid, "the body, which should hold %s, is not declared as a form", source),
		compressed: newError(ErrInvalid, "the body, which should hold %s, is compressed", source),
		malformed:  newError(ErrInvalid, "the body, which should hold %s, is malformed", source),
		file:       newError(ErrInvalid, "%s is a file", source),
		inQuery:    newError(ErrInvalid, "%s is given in the query string as well", source),
	}
	refuse := refusalsOf(source)
	return func(r *http.Request) (string, error) {
		values, err := f.values(r)
		if err != nil {
			return "", err
		}
		return refuse.one(values)
	}
}

type formField struct {
	name string
	body *bodyReader

	noForm, compressed, malformed, file, inQuery error
}

func (f *formField) values(r *http.Request) ([]string, error) {
	if !hasBody(r) {
		return nil, nil
	}
	if compressed(r) {
		return nil, f.compressed
	}
	media, params, ok := mediaType(r)
	switch {
	case ok && media == "application/x-www-form-urlencoded":
		return f.urlencoded(r)
	case ok && media == "multipart/form-data":
		return f.multipart(r, params["boundary"])
	}
	return nil, f.noForm
}

func (f *formField) urlencoded(r *http.Request) ([]string, error) {
	if r.PostForm != nil && parsesForms(r.Method) {
		return r.PostForm[f.name], nil
	}
	data, err := f.body.read(r)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(data))
	if err != nil {
		return nil, f.malformed
	}
	return form[f.name], nil
}

// parsesForms reports whether Request.ParseForm reads the body. For other methods it leaves an
// empty PostForm.
func parsesForms(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

func (f *formField) multipart(r *http.Request, boundary string) ([]string, error) {
	form := r.MultipartForm
	if form == nil {
		data, err := f.body.read(r)
		if err != nil || len(data) == 0 {
			return nil, err
		}
		// Parse like the handler's ParseMultipartForm. With this much memory, no file goes to disk.
		form, err = multipart.NewReader(bytes.NewReader(data), boundary).ReadForm(int64(len(data)))
		if err != nil {
			return nil, f.malformed
		}
	}
	switch {
	case len(form.File[f.name]) > 0:
		return nil, f.file
	case len(form.Value[f.name]) > 0 && r.URL.Query().Has(f.name):
		return nil, f.inQuery
	}
	return form.Value[f.name], nil
}
