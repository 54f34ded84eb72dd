package fiberlock

import (
	"bytes"
	"io"
	"maps"
	"mime/multipart"
	"slices"

	"github.com/gofiber/fiber/v3"
)

// inMemory returns a copy of a body that is no stream. Of a multipart form with a Content-Length,
// fasthttp keeps only what it has parsed, and its Body has the fields in the order of a Go map:
// another one each time.
func inMemory(c fiber.Ctx) ([]byte, error) {
	in := c.Request()
	if in.Header.ContentLength() > 0 && len(in.Header.ContentEncoding()) == 0 && !c.App().Config().DisablePreParseMultipartForm {
		if form, err := in.MultipartForm(); err == nil {
			return inOrder(form, string(in.Header.MultipartFormBoundary()))
		}
	}
	return bytes.Clone(in.Body()), nil
}

// inOrder writes a form: its values by name, and then its files. Parts with one name keep their
// order.
func inOrder(form *multipart.Form, boundary string) ([]byte, error) {
	var out bytes.Buffer // its writes never fail
	w := multipart.NewWriter(&out)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[name] {
			_ = w.WriteField(name, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[name] {
			if err := appendFile(w, file); err != nil {
				return nil, err
			}
		}
	}
	_ = w.Close()
	return out.Bytes(), nil
}

func appendFile(w *multipart.Writer, header *multipart.FileHeader) error {
	file, err := header.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	part, _ := w.CreatePart(header.Header)
	_, err = io.Copy(part, file)
	return err
}
