# Dashboards and their pictures; part of the Makefile.

.PHONY: dashboards dashboard-pictures monitoring

dashboards: $(DEV_STAMP) ## Write deploy/grafana/dashboards/ from the code
	$(DEV_PYTHON) -m deploy.grafana

dashboard-pictures: $(DEV_STAMP) ## Draw every panel from a real Prometheus (needs prometheus; ARGS="--prometheus URL")
	$(DEV_PYTHON) -m deploy.grafana.pictures $(ARGS)

monitoring: ## Server, Prometheus and Grafana with its dashboards on http://127.0.0.1:3000 (needs docker)
	$(DOCKER) compose --file deploy/compose.yaml up --build $(ARGS)
