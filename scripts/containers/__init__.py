"""`make containers`: the images, built and run as deploy/compose.yaml has them, without a registry or compose."""
