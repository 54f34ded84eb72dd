package request

import "net/http"

// OtherMethod stands for every method that is not one of net/http's constants.
const OtherMethod = "_OTHER"

// Method returns the method of a request for logs and labels. A client can send any token as a
// method, of any length, so only those of net/http stay: the rest are OtherMethod, as in
// OpenTelemetry.
func Method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	case "":
		return http.MethodGet
	}
	return OtherMethod
}
