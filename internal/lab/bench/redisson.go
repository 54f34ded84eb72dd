package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const redisson = "Redisson"

//go:embed redisson/Bench.java
var redissonSource []byte

// peerLibraries matches the directories that make interop fills with Redisson, one per version it
// has tested. Redisson 3 is left out.
const peerLibraries = "../interop/redisson/peer/target/4.*/lib"

// A jvm runs Redisson in a Java process with a text protocol.
type jvm struct {
	cmd    *exec.Cmd
	dir    string
	in     io.WriteCloser
	out    *bufio.Scanner
	errors strings.Builder
}

// errNoJava means that Redisson cannot take part.
var errNoJava = errors.New("no Redisson")

func startRedisson(addr string) (_ *jvm, err error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoJava, err)
	}
	found, _ := filepath.Glob(filepath.Join(peerLibraries, "redisson-*.jar"))
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: make interop has not built its peer", errNoJava)
	}
	jars, err := filepath.Abs(filepath.Dir(found[len(found)-1]))
	if err != nil {
		return nil, err
	}
	j := &jvm{}
	if j.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(j.dir)
		}
	}()
	source := filepath.Join(j.dir, "Bench.java")
	if err := os.WriteFile(source, redissonSource, 0o600); err != nil {
		return nil, err
	}
	// Java compiles a single source file.
	j.cmd = exec.Command(java, "-cp", filepath.Join(jars, "*"), source, addr)
	j.cmd.Stderr = &j.errors
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.out = bufio.NewScanner(out)
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := j.line(); err != nil || line != "ready" {
		return nil, errors.Join(fmt.Errorf("the JVM said %q, want ready: %w", line, err), j.Close())
	}
	return j, nil
}

func (j *jvm) line() (string, error) {
	var line string
	err := inTime(patience, func() error {
		if !j.out.Scan() {
			return errors.Join(errors.New("the JVM exited"), j.out.Err())
		}
		line = j.out.Text()
		return nil
	})
	if err != nil {
		return "", err
	}
	return line, nil
}

// ask sends a request and returns the numbers of the answer.
func (j *jvm) ask(want int, request ...any) ([]float64, error) {
	if _, err := fmt.Fprintln(j.in, request...); err != nil {
		return nil, err
	}
	line, err := j.line()
	if err != nil {
		return nil, err
	}
	var numbers []float64
	for word := range strings.FieldsSeq(line) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, fmt.Errorf("the JVM answered %q: %w", line, err)
		}
		numbers = append(numbers, n)
	}
	if len(numbers) != want {
		return nil, fmt.Errorf("the JVM answered %q, want %d numbers", line, want)
	}
	return numbers, nil
}

// Close ends the JVM, which usually exits at the end of its input.
func (j *jvm) Close() error {
	closed := j.in.Close()
	switch err := inTime(patience, j.cmd.Wait); {
	case err == errStuck:
		closed = errors.Join(closed, err, j.cmd.Process.Kill())
	case err != nil:
		closed = errors.Join(closed, fmt.Errorf("the JVM: %w: %s", err, j.errors.String()))
	}
	return errors.Join(closed, os.RemoveAll(j.dir))
}

// besideJVM adds rounds of Redisson to S1 to S3, if it is available. It runs in its own process:
// CPU time is that of the JVM, and allocations are not measured.
func (b *bench) besideJVM() (err error) {
	j, err := startRedisson(b.addr)
	if errors.Is(err, errNoJava) {
		b.note("Redisson took no part in S1 to S3: %v.", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = b.pardon("S1 to S3", redisson, errors.Join(err, j.Close())) }()
	// Warms up the JVM's compiler.
	if _, err := j.ask(3, "own", 64, b.pick(5*time.Second, time.Second).Milliseconds()); err != nil {
		return err
	}
	return b.rounds("Redisson", func() error {
		for _, threads := range []int{1, 4, 64, 256} {
			if err := b.redissonOwn(j, threads); err != nil {
				return err
			}
		}
		for _, hold := range []time.Duration{s2Hold, 0} {
			if err := b.redissonHot(j, hold); err != nil {
				return err
			}
		}
		turns := 300
		if b.short {
			turns = 60
		}
		v, err := j.ask(3, "relay", turns)
		if err != nil {
			return err
		}
		b.add(s3, twoClients, redisson, handOffP50, v[1]/1e6)
		b.add(s3, twoClients, redisson, handOffP99, v[2]/1e6)
		return nil
	})
}

func (b *bench) redissonOwn(j *jvm, threads int) error {
	before, err := b.probe.state(0)
	if err != nil {
		return err
	}
	v, err := j.ask(3, "own", threads, b.pick(time.Second, 100*time.Millisecond).Milliseconds())
	if err != nil {
		return err
	}
	after, err := b.probe.state(0)
	if err != nil {
		return err
	}
	u := since(before, after, redisson)
	variant, cycles := goroutinesOf(threads), max(v[1], 1)
	b.add(s1, variant, redisson, throughput, v[1]/v[2]*1e9)
	b.add(s1, variant, redisson, clientMicros, v[0]/cycles/1e3)
	// Redis is measured from before the warm-up to after the end, and counts the acquisitions of
	// all of it.
	if scripts := float64(u.commands) / 2; scripts > 0 {
		b.add(s1, variant, redisson, redisMicros, micros(u.redisCPU)/scripts)
	}
	return nil
}

func (b *bench) redissonHot(j *jvm, hold time.Duration) error {
	v, err := j.ask(7, "hot", s2Goroutines, b.pick(3*time.Second, 300*time.Millisecond).Milliseconds(), hold.Milliseconds())
	if err != nil {
		return err
	}
	variant := holdOf(hold)
	b.add(s2, variant, redisson, acquisitions, v[1]/v[2]*1e9)
	b.add(s2, variant, redisson, waitP50, v[3]/1e6)
	b.add(s2, variant, redisson, waitP99, v[4]/1e6)
	b.add(s2, variant, redisson, fewest, v[5])
	b.add(s2, variant, redisson, most, v[6])
	return nil
}
