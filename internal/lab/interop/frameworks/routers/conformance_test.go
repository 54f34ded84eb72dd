// Package routers runs the suite of adapters with routers that httplock works with.
package routers

import (
	"testing"

	"github.com/reqlock/reqlock/adapter/adaptertest"
)

var routers = []adaptertest.Adapter{onMux, onHTTPRouter}

func TestMain(m *testing.M) { adaptertest.Main(m, routers...) }

// TestConformance logs a table of all results, which -v shows.
func TestConformance(t *testing.T) { adaptertest.Run(t, routers...) }
