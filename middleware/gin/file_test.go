package ginlock

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/reqlock/reqlock/internal/lab/locktest"
)

func TestFromFile(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	locktest.FileTest[*File]{
		Open: FromFile,
		User: Value("user"),
		Serve: func(file *File, run func() string) *locktest.Server {
			s.engine.Use(func(c *gin.Context) { c.Set("user", "anna") }, file.Middleware())
			s.engine.GET("/orders/:id", answerLock)
			s.engine.PUT("/orders/:id", answerLock)
			s.engine.POST("/pay/:id", func(c *gin.Context) { c.String(http.StatusCreated, run()) })
			s.engine.GET("/reports/:id", func(c *gin.Context) { c.String(http.StatusOK, run()) })
			return s.Server
		},
		Check: func(file *File) error { return file.Check(s.engine) },
	}.Run(t)
}
