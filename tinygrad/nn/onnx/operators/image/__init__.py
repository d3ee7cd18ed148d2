"""Images: resampling, boxes of detectors."""
