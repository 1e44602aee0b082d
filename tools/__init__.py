"""What makes the pages: the site (`make docs`) and the picture in the README (`make picture`)."""
