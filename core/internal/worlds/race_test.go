//go:build race

package worlds

func init() { raceDetector = true }
