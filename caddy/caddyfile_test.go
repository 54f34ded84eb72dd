package caddylock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func adapt(config, name string) ([]byte, error) {
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), map[string]any{"filename": name})
	return adapted, err
}

// caddy validate finds each mistake, and names its line.
func TestMistakes(t *testing.T) {
	t.Parallel()
	shown := regexp.MustCompile("[#/]cret|#secret|pa55|" + delegationSecret)
	const head, app = "{\n", "reqlock {\nembedded\n}\n"
	inApp := func(lines string) string { return head + "reqlock {\n" + lines + "\n}\n}\n:80 {\n}\n" }
	inLock := func(lines string) string { return head + app + "}\n:80 {\nreqlock {\n" + lines + "\n}\n}\n" }
	inOnce := func(lines string) string { return head + app + "}\n:80 {\nreqlock_idempotent {\n" + lines + "\n}\n}\n" }
	inShared := func(lines string) string { return head + app + "}\n:80 {\nreqlock_coalesce {\n" + lines + "\n}\n}\n" }
	for name, test := range map[string]struct {
		config string
		line   int
		says   string
	}{
		"nothing":                {inApp(""), 4, "0 of redis, sentinel, cluster and embedded are set"},
		"two":                    {inApp("redis redis://127.0.0.1:6379\nembedded"), 5, "2 of redis, sentinel"},
		"no URL":                 {inApp("redis"), 3, "redis needs a value"},
		"two URLs":               {inApp("redis redis://a redis://b"), 3, `redis takes one value, and "redis://b" follows it`},
		"a bare address":         {inApp("redis 127.0.0.1:6379"), 3, "redis has a malformed URL"},
		"a secret in the port":   {inApp("redis redis://default:12#secret@a.example:6379"), 3, "redis has a malformed URL (not shown"},
		"a secret in the URL":    {inApp("redis redis://:se/cret@a.example:x"), 3, "redis has a malformed URL (not shown"},
		"twice":                  {inApp("redis redis://a\nredis redis://b"), 4, "redis is given more than once"},
		"an argument":            {head + "reqlock redis://a\n}\n:80 {\n}\n", 2, `unexpected argument "redis://a"`},
		"unknown":                {inApp("reddis redis://a"), 3, `unknown option "reddis"`},
		"sentinel":               {inApp("sentinel mymaster"), 3, "want sentinel MASTER HOST:PORT..."},
		"sentinel's address":     {inApp("sentinel mymaster 10.0.0.1"), 3, `sentinel has the address "10.0.0.1"`},
		"sentinel_password":      {inApp("embedded\nsentinel_password x"), 5, "sentinel_password needs sentinel"},
		"cluster":                {inApp("cluster"), 3, "cluster has no address"},
		"cluster's address":      {inApp("cluster a:1 b"), 3, `cluster has the address "b"`},
		"both passwords":         {inApp("redis redis://a\npassword x\npassword_file y"), 6, "password and password_file are both set"},
		"embedded with password": {inApp("embedded\npassword x"), 5, "embedded takes neither"},
		"db":                     {inApp("redis redis://a\ndb 1"), 5, "put the number into the URL"},
		"db, not a number":       {inApp("redis redis://a\ndb one"), 4, `db is "one"; want a number`},
		"watchdog":               {inApp("redis redis://a\nwatchdog 1ms"), 4, "watchdog is 1ms; use at least 10ms"},
		"command_timeout":        {inApp("redis redis://a\ncommand_timeout -3s"), 4, `command_timeout is "-3s"; want a duration`},
		"client_id":              {inApp("redis redis://a\nclient_id \"a b\""), 5, `core.Options.ClientID "a b"`},
		"replica_acks":           {inApp("redis redis://a\ncommand_timeout 1s\nreplica_acks 1"), 6, "core.Options.ReplicaTimeout is 1s"},
		"publish":                {inApp("redis redis://a\npublish loud"), 4, `publish is "loud"; use auto, plain, sharded or both`},
		"tls":                    {inApp("redis rediss://a\ntls {\nca /nowhere.pem\n}"), 5, "open /nowhere.pem"},
		"tls, unknown":           {inApp("redis rediss://a\ntls {\nauthority x\n}"), 5, `unknown option "authority" of tls`},
		"tls, no key":            {inApp("redis rediss://a\ntls {\ncertificate x\n}"), 5, "want certificate FILE KEYFILE"},

		"no app":             {":80 {\nreqlock {\nkey a\n}\n}\n", 2, "there is no global option reqlock"},
		"no app, idempotent": {":80 {\nreqlock_idempotent {\nscope global\n}\n}\n", 2, "there is no global option reqlock"},
		"no key":             {inLock("wait 1s"), 9, "there is neither a key nor a policy"},
		"no block":           {head + app + "}\n:80 {\nreqlock\n}\n", 7, "there is neither a key nor a policy"},
		"a key as argument":  {head + app + "}\n:80 {\nreqlock /a order\n}\n", 7, `unexpected argument "order"`},
		"mode":               {inLock("key a\nmode exclusif"), 9, `mode is "exclusif"; want exclusive, fair, fenced, read, write or read_write`},
		"fenced, two keys":   {inLock("key a\nkey b\nmode fenced"), 11, "mode is fenced, but several locks have no common token"},
		"a token, two keys":  {inLock("key a\nkey b\nfenced"), 11, "fenced is set, but several locks have no common token"},
		"fenced, readers":    {inLock("key a\nmode read\nfenced"), 11, "fenced is set with mode read, but readers have no tokens"},
		"limit 1":            {inLock("key a\nlimit 1"), 10, "limit is 1; want 2 or more, or 0 for a lock"},
		"limit, no number":   {inLock("key a\nlimit five"), 9, `"five"`},
		"limit and mode":     {inLock("key a\nlimit 5\nmode fair"), 11, "the route has both mode and limit"},
		"limit and fenced":   {inLock("key a\nlimit 5\nfenced"), 11, "fenced is set with a limit"},
		"policy and limit":   {inLock("policy testdata/pay.py\nlimit 5"), 10, "leave out key, mode, fenced and limit, or policy"},
		"fenced, a value":    {inLock("key a\nfenced on"), 9, `fenced takes no value, and "on" follows it`},
		"wait":               {inLock("key a\nwait 2"), 9, `wait is "2"; want a duration`},
		"wait, no value":     {inLock("key a\nwait"), 9, "wait needs a value"},
		"negative":           {inLock("key a\nmax_hold -1s"), 9, `max_hold is "-1s"; want a duration`},
		"lease":              {inLock("key a\nlease 10us"), 10, "lease is 10µs; want a duration of at least 1ms"},
		"max_waiters":        {inLock("key a\nmax_waiters -2"), 9, `max_waiters is "-2"; want a number, at least -1`},
		"a flag":             {inLock("key a\nfail_open on"), 9, `fail_open takes no value, and "on" follows it`},
		"buffer_body":        {inLock("key a\nbuffer_body much"), 9, `buffer_body is "much"; want a size`},
		"policy":             {inLock("policy /nowhere.wasm"), 8, "open /nowhere.wasm"},
		"policy and key":     {inLock("policy testdata/pay.py\nkey a"), 10, "policy decides on keys, mode, tokens and limit"},
		"policy and fenced":  {inLock("policy testdata/pay.py\nfenced"), 10, "leave out key, mode, fenced and limit, or policy"},
		"policy_settings":    {inLock("key a\npolicy_settings x"), 10, "there is policy_settings, but no policy"},
		"an open brace":      {inLock("key order:{path.1"), 8, "column 7: the brace is not closed"},
		"side by side":       {inLock("key {path.1}{path.2}"), 8, "a value directly behind another"},
		"not a number":       {inLock("key {path.id}"), 8, "{http.request.uri.path.id} is not a placeholder: Caddy numbers the segments of a path from 0"},
		"original":           {inLock("key {http.request.orig_uri.path.id}"), 8, "is not a placeholder: Caddy numbers"},
		"no label":           {inLock("key {labels.com}"), 8, "{http.request.host.labels.com} is not a placeholder: Caddy numbers the labels of a host from 0 at its end"},
		"misspelt":           {inLock("key {http.request.hots}"), 8, "{http.request.hots} is not a placeholder of Caddy"},
		"without a dot":      {inLock("key {user}"), 8, "{user} is not a placeholder"},
		"uuid":               {inLock("key {uuid}"), 8, "{http.request.uuid} differs for each request"},
		"time":               {inLock("key {time.now.unix}"), 8, "{time.now.unix} changes with time"},
		"remote":             {inLock("key {remote}"), 8, "use {http.request.remote.host}"},
		"escaped":            {inLock("key {%path}"), 8, "one path could have several keys"},
		"body":               {inLock("key {http.request.body}"), 8, "use {body.hash}"},
		"response":           {inLock("key {http.response.header.X}"), 8, "unknown before the request has been handled"},
		"pattern":            {inLock("key {pattern}"), 8, "Caddy has no patterns"},
		"a header's name":    {inLock("key {http.request.header.a b}"), 8, `"b}" follows it`},
		"no header":          {inLock("key {header.Host}"), 8, "{http.request.header.Host} is not a placeholder"},
		"JSON pointer":       {inLock("key {json.order}"), 8, `"order":`},

		"delegates":            {inLock("key a\ntrusted_delegators 10.0.0.1\ndelegates yes"), 11, `delegates is "yes"; want none, together or one_at_a_time`},
		"delegates, no trust":  {inLock("key a\ndelegates together"), 10, "delegates is set, but no caller is trusted"},
		"delegators":           {inLock("key a\ntrusted_delegators 10.0.0.0/33"), 9, `trusted_delegators has "10.0.0.0/33"; want an address, a range such as 10.0.0.0/8, or private_ranges`},
		"delegators, a name":   {inLock("key a\ntrusted_delegators 10.0.0.1 localhost"), 9, `trusted_delegators has "localhost"`},
		"no delegators":        {inLock("key a\ntrusted_delegators"), 9, "trusted_delegators needs addresses"},
		"delegate_to":          {inLock("key a\ndelegate_to a,b"), 10, `delegate_to is "a,b"; want the name of a service`},
		"delegate_to, nobody":  {inLock("key a\ndelegate_to"), 9, "delegate_to needs a value"},
		"delegation, no name":  {inApp("embedded\ndelegation {\nkey x\n}"), 4, "want delegation NAME { key SECRET }"},
		"delegation, a secret": {inApp("embedded\ndelegation edge my-pa55"), 4, "want delegation NAME { key SECRET }"},
		"delegation, no key":   {inApp("embedded\ndelegation edge"), 4, "delegation has no key"},
		"delegation, unknown":  {inApp("embedded\ndelegation edge {\nkeys x\n}"), 5, `unknown option "keys" of delegation`},
		"a short secret":       {inApp("embedded\ndelegation edge {\nkey my-pa55\n}"), 6, "secret 1 has 7 bytes, want at least 32"},
		"a secret with blanks": {inApp("embedded\ndelegation edge {\nkey my pa55\n}"), 5, "want key SECRET; quote a secret with blanks"},
		"the same secrets":     {inApp("embedded\ndelegation edge {\nkey " + delegationSecret + "\nkey " + delegationSecret + "\n}"), 7, "secrets 1 and 2 are the same"},
		"a secret, no base64":  {inApp("embedded\ndelegation edge {\nkey base64:my!pa55\n}"), 6, "delegation: key 1 has no base64 behind base64:"},
		"delegation, a name":   {inApp("embedded\ndelegation edge, {\nkey " + delegationSecret + "\n}"), 6, "Service.Name"},

		"no scope":       {inOnce("ttl 1h"), 9, "there is no scope; want a source that names the caller, such as {http.auth.user.id}"},
		"scope":          {inOnce("scope everybody"), 8, `scope is "everybody", the same for all callers`},
		"scope, unknown": {inOnce("scope {user}"), 8, "{user} is not a placeholder"},
		"ttl":            {inOnce("scope global\nttl forever"), 9, `ttl is "forever"; want a duration`},
		"ttl, too short": {inOnce("scope global\nttl 1us"), 10, "TTL is 1µs"},
		"on_unknown":     {inOnce("scope global\non_unknown retry"), 9, `on_unknown is "retry"; want rerun or refuse`},
		"route":          {inOnce("scope global\nroute /pay/{id}"), 10, "has a wildcard with a name"},
		"header":         {inOnce("scope global\nheader Host"), 10, `Header is "Host"`},
		"a key there":    {inOnce("scope global\nkey a"), 9, `unknown option "key"`},

		"no app, shared":     {":80 {\nreqlock_coalesce\n}\n", 2, "there is no global option reqlock"},
		"shared key":         {inShared("key {user}"), 8, "{user} is not a placeholder"},
		"two shared keys":    {inShared("key a\nkey b"), 9, "key is given more than once"},
		"user":               {inShared("user alice"), 8, `user is "alice", the same for all; want a source such as {http.auth.user.id}, or everyone`},
		"user, unknown":      {inShared("user {user}"), 8, "user: "},
		"vary":               {inShared("vary"), 8, "vary needs the names of headers"},
		"vary, a star":       {inShared("vary *"), 9, `vary: reqlock: coalesce: invalid Config: Vary has "*"`},
		"unsafe":             {inShared("unsafe"), 8, "unsafe needs a value"},
		"unsafe, no key":     {inShared("unsafe \"a query\""), 9, "unsafe: "},
		"shared wait":        {inShared("wait 0"), 8, `wait is "0"; want a duration`},
		"shared wait, short": {inShared("wait 1us"), 9, "wait: "},
		"shared lease":       {inShared("lease 10us"), 9, "lease is 10µs; want a duration of at least 1ms"},
		"keep":               {inShared("keep 2h"), 9, "keep: "},
		"keep, never":        {inShared("keep 0"), 8, `keep is "0"; want a duration`},
		"error_for":          {inShared("error_for never"), 8, `error_for is "never"; want a duration`},
		"stale":              {inShared("stale never"), 8, `stale is "never"; want a duration`},
		"stale without keep": {inShared("stale 1m"), 9, "stale: "},
		"error_for, long":    {inShared("error_for 2h"), 9, "error_for: "},
		"max_answer":         {inShared("max_answer much"), 8, `max_answer is "much"; want a size`},
		"shared max_waiters": {inShared("max_waiters -2"), 8, `max_waiters is "-2"; want a number, at least -1`},
		"unmarked":           {inShared("unmarked yes"), 8, `unmarked takes no value, and "yes" follows it`},
		"max_hold there":     {inShared("max_hold 1s"), 8, `unknown option "max_hold"`},
	} {
		_, err := adapt(test.config, "Caddyfile")
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		at := regexp.MustCompile(`Caddyfile:(\d+)`).FindStringSubmatch(err.Error())
		if !strings.Contains(err.Error(), test.says) || at == nil || at[1] != fmt.Sprint(test.line) {
			t.Errorf("%s: %v\nwant line %d and %q", name, err, test.line, test.says)
		}
		if shown.MatchString(err.Error()) {
			t.Errorf("%s: the error shows a password: %v", name, err)
		}
	}
}

// What only starting can find out is found by caddy validate, too.
func TestMistakes_Late(t *testing.T) {
	t.Parallel()
	p := &process{dir: t.TempDir(), port: "1"}
	for name, test := range map[string]struct{ config, says string }{
		"an unset variable": {caddyfile("reqlock {\n redis {env.REQLOCK_UNSET}\n }", ""), "redis: evaluated placeholder {env.REQLOCK_UNSET} is empty"},
		"its value":         {caddyfile("reqlock {\n redis {env.PORT}\n }", ""), "redis has a malformed URL"},
		"no password file":  {caddyfile("reqlock {\n redis redis://a.example\n password_file /nowhere\n }", ""), "password_file: stat /nowhere"},
		"client_id":         {caddyfile("reqlock {\n redis redis://a.example\n client_id \"a b\"\n }", ""), "core.Options.ClientID"},
		"not a plugin":      {caddyfile("reqlock {\n embedded\n }", "reqlock {\n policy testdata/pay.py\n }"), "pay.py"},
		"a short secret":    {caddyfile("reqlock {\n embedded\n delegation edge {\n key {env.PORT}\n }\n }", ""), "secret 1 has 1 bytes, want at least 32"},
		"an unset secret":   {caddyfile("reqlock {\n embedded\n delegation edge {\n key {env.REQLOCK_UNSET}\n }\n }", ""), "delegation: key 1: evaluated placeholder {env.REQLOCK_UNSET} is empty"},
		"no file":           {caddyfile("reqlock {\n embedded\n delegation edge {\n key {file./nowhere}\n }\n }", ""), "delegation: key 1: evaluated placeholder {file./nowhere} is empty"},
		"a brace":           {caddyfile("reqlock {\n embedded\n delegation edge {\n key my{pa55}horse\n }\n }", ""), "delegation: key 1: a placeholder in it has no value (not shown"},
		"delegates":         {caddyfile("reqlock {\n embedded\n }", "reqlock {\n key a\n trusted_delegators private_ranges\n delegates together\n }"), "delegates and delegate_to need secrets"},
		"delegate_to":       {caddyfile("reqlock {\n embedded\n }", "reqlock {\n key a\n delegate_to orders\n }"), "delegates and delegate_to need secrets"},
		"a line":            {caddyfile("reqlock {\n embedded\n }", "reqlock {\n mode fair\n }"), "Caddyfile:15"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		out, err := p.command(ctx, "validate", "--config", p.write(t, test.config)).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), test.says) || strings.Contains(string(out), "pa55") {
			t.Errorf("%s: %v, want %q in:\n%s", name, err, test.says, out)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the files in testdata/adapt")

// The JSON of each Caddyfile in testdata/adapt is beside it, and Caddy accepts both.
func TestAdapt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/adapt/*.caddyfile")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	p := &process{dir: t.TempDir(), port: "8080"}
	for _, file := range files {
		config, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		adapted, err := adapt(string(config), file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, adapted, "", "\t"); err != nil {
			t.Fatal(err)
		}
		indented.WriteByte('\n')
		golden := strings.TrimSuffix(file, ".caddyfile") + ".json"
		if *update {
			if err := os.WriteFile(golden, indented.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(want, indented.Bytes()) {
			t.Errorf("%s differs from %s (%v); go test -run TestAdapt -update rewrites it:\n%s", file, golden, err, &indented)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := p.command(ctx, "validate", "--config", golden)
		cmd.Env = append(cmd.Env, "REDIS_PASSWORD=secret", "REDIS_URL=redis://127.0.0.1:6379")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", golden, err, out)
		}
		cancel()
	}
}
