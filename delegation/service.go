package delegation

import "errors"

// Service says who a program is to others that delegate. The zero value turns delegation off.
type Service struct {
	// Keys signs tokens and verifies those of others. nil: delegation is off.
	Keys *Keys
	// Name is the audience of tokens for this program: 1 to 64 bytes of visible ASCII without ','.
	// All processes of one program have one name.
	Name string
}

// Check returns an error if s has a Name without Keys, or Keys and no Name that can be an audience.
func (s Service) Check() error {
	if s.Keys == nil {
		if s.Name != "" {
			return errors.New("reqlock: delegation: Service.Name is set without Service.Keys; set both, or none")
		}
		return nil
	}
	if reason := refuseAudience(s.Name); reason != "" {
		return errors.New("reqlock: delegation: Service.Name " + reason)
	}
	return nil
}
