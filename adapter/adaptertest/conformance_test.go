package adaptertest_test

import (
	"testing"

	"github.com/reqlock/reqlock/adapter/adaptertest"
)

var frameworks = []adaptertest.Adapter{onMux, onChi, onGin, onEcho}

func TestMain(m *testing.M) { adaptertest.Main(m, frameworks...) }

// TestConformance logs a table of all results, which -v shows.
func TestConformance(t *testing.T) { adaptertest.Run(t, frameworks...) }

func TestIdempotencyKeys(t *testing.T) { adaptertest.RunKeys(t, onMux) }

// The page about changes of the configuration says what a server of two versions does.
func TestIdempotencyChanges(t *testing.T) { adaptertest.RunChanges(t, onMux) }

// Each sentence of the policy to copy holds.
func TestIdempotencyPolicy(t *testing.T) { adaptertest.RunPolicy(t, onMux) }

func TestHeavy(t *testing.T) { adaptertest.RunHeavy(t, onMux) }
