// Package deploy tests what is in its directory: the service orders, the dashboard and alerts for
// Prometheus and Grafana, and the manifests for containers and Kubernetes. It also measures what
// metrics cost.
package deploy
