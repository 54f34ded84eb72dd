package main

import (
	"embed"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

//go:embed page.html page.css page.js
var files embed.FS

// file serves one file of the page.
func file(name, contentType string) gin.HandlerFunc {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // at start-up
	}
	return func(c *gin.Context) {
		c.Header("Content-Security-Policy", "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Referrer-Policy", "no-referrer")
		c.Header("Cache-Control", "no-cache")
		c.Data(http.StatusOK, contentType, text)
	}
}

// sameSite refuses what a page of another site makes a browser send here. Only a POST changes
// anything, and a POST of another origin gets 403. A Host other than an IP address or localhost
// gets 403 too: it may be another site's name that resolves to this machine.
func sameSite(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "open this page by IP address or as localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
