package fiberlock_test

import (
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/internal/locktest"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

func TestFromFile(t *testing.T) {
	t.Parallel()
	var routed *fiber.App
	locktest.FileTest[*fiberlock.File]{
		Open: fiberlock.FromFile,
		User: fiberlock.Value("user"),
		Serve: func(file *fiberlock.File, pay func() string) *locktest.Site {
			return serve(t, func(app *fiber.App) {
				routed = app
				app.Use(func(c fiber.Ctx) error {
					c.Locals("user", "anna")
					return c.Next()
				})
				app.Get("/orders/:id", file.Middleware(), answerLock)
				app.Put("/orders/:id", file.Middleware(), answerLock)
				app.Post("/pay/:id", file.Middleware(), func(c fiber.Ctx) error { return c.Status(201).SendString(pay()) })
				app.Use("/used", file.Middleware())
				app.Get("/used/orders", answerLock)
				app.Group("/group", file.Middleware()).Get("/orders", answerLock)
			})
		},
		Check: func(file *fiberlock.File) error { return file.Check(routed) },
		Also: func(s *locktest.Site) {
			s.Want("HEAD", "/orders/1", 409, "")
			s.Want("GET", "/used/orders", 500, "misconfigured")
			s.Want("GET", "/group/orders", 500, "misconfigured")
		},
	}.Run(t)
}
