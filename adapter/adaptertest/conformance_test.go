package adaptertest_test

import (
	"testing"

	"github.com/reqlock/reqlock/adapter/adaptertest"
)

var frameworks = []adaptertest.Adapter{onMux, onChi, onGin, onEcho}

func TestMain(m *testing.M) { adaptertest.Main(m, frameworks...) }

// Every behaviour in every framework; with -v, the table of them is printed in the end.
func TestConformance(t *testing.T) { adaptertest.Run(t, frameworks...) }

func TestHeavy(t *testing.T) { adaptertest.RunHeavy(t, onMux) }
