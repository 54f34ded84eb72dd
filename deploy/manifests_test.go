package deploy

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// promtool accepts the alerts, and its unit tests of them pass.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v; scripts/install-prometheus.sh installs it: %s", strings.Join(args, " "), err, out)
		}
	}
	tests := read(t, "prometheus/alerts_test.yml")
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			if !regexp.MustCompile(`alertname: ` + rule.Alert + `\n\s+exp_alerts:\n`).MatchString(tests) {
				t.Errorf("no test lets %s fire", rule.Alert)
			}
		}
	}
}

// compose.yaml is valid by the schema of Docker Compose, and the files it mounts exist.
func TestCompose(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != 5 {
		t.Errorf("services %v", project.ServiceNames())
	}
	for name, service := range project.Services {
		for _, volume := range service.Volumes {
			if found, err := filepath.Glob(volume.Source); volume.Type == types.VolumeTypeBind && (err != nil || len(found) != 1) {
				t.Errorf("%s mounts %s, which does not exist", name, volume.Source)
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s listens on %q", name, port.HostIP)
			}
		}
		if service.Build != nil {
			if found, _ := filepath.Glob(filepath.Join(service.Build.Context, service.Build.Dockerfile)); len(found) != 1 {
				t.Errorf("%s has no %s", name, service.Build.Dockerfile)
			}
			if grace := time.Duration(*service.StopGracePeriod); grace <= 30*time.Second {
				t.Errorf("%s is killed after %s", name, grace)
			}
		}
	}
}

// Kubernetes accepts the fields of the manifests. The pods have time to end, and liveness does not
// ask Redis.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	var deployment appsv1.Deployment
	documents := bytes.Split([]byte(read(t, "kubernetes/orders.yaml")), []byte("\n---\n"))
	for i, into := range []any{&deployment, new(corev1.Service), new(policyv1.PodDisruptionBudget)} {
		if err := yaml.UnmarshalStrict(documents[i], into); err != nil {
			t.Fatal(err)
		}
	}
	if len(documents) != 3 {
		t.Errorf("%d documents", len(documents))
	}
	pod := deployment.Spec.Template.Spec
	container := pod.Containers[0]
	const grace = 30 // of the service
	if total := container.Lifecycle.PreStop.Sleep.Seconds + grace; *pod.TerminationGracePeriodSeconds <= total {
		t.Errorf("pods are killed after %d s; they need %d", *pod.TerminationGracePeriodSeconds, total)
	}
	if path := container.ReadinessProbe.HTTPGet.Path; path != "/readyz" {
		t.Errorf("readiness probe %s", path)
	}
	if path := container.LivenessProbe.HTTPGet.Path; path != "/healthz" || container.StartupProbe != nil {
		t.Errorf("liveness probe %s", path)
	}
	if text := read(t, "../docs/guides/shutdown.md"); !strings.Contains(text, "```yaml\n"+excerpt(t)+"```") {
		t.Error("docs/guides/shutdown.md has not the pod's part of kubernetes/orders.yaml")
	}
}

// excerpt returns the part of the manifest that docs/guides/shutdown.md shows.
func excerpt(t *testing.T) string {
	t.Helper()
	text := read(t, "kubernetes/orders.yaml")
	from, to := strings.Index(text, "      # preStop (5s)"), strings.Index(text, "          resources:")
	if from < 0 || to < from {
		t.Fatal("the manifest has changed")
	}
	return regexp.MustCompile(`(?m)^      `).ReplaceAllString(text[from:to], "")
}
