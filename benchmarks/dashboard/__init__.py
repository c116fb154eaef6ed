"""What the dashboard and `why` cost with a million jobs stored, and what many open dashboards cost the service."""
