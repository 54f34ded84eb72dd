package main

import (
	"strings"
	"testing"
)

func TestIsRedisson(t *testing.T) {
	t.Parallel()
	const client = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	if !isRedisson(client) {
		t.Error("a UUID is none")
	}
	for _, other := range []string{
		"", "web-1.4242.k3j9x2ab", strings.ToUpper(client), "{" + client + "}", "urn:uuid:" + client, strings.ReplaceAll(client, "-", ""),
		client + "0", " " + client, client[1:], client[:35] + "g",
	} {
		if isRedisson(other) {
			t.Errorf("%q is one", other)
		}
	}
}
