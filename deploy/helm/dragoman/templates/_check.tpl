{{/* Values that are right each by itself, and wrong together. */}}
{{- define "dragoman.check" -}}
{{- if not (regexMatch "^[a-z]" (include "dragoman.fullname" .)) -}}
{{- fail (printf "the release is called %q, and the name of a Service begins with a letter: set fullnameOverride" .Release.Name) -}}
{{- end -}}
{{- $source := .Values.models.source -}}
{{- if and (eq $source "embedded") .Values.models.bundles -}}
{{- fail "models.bundles is set, but models.source is embedded: say where the bundles come from" -}}
{{- end -}}
{{- $sources := dict "image" .Values.models.image.reference "persistentVolumeClaim" .Values.models.persistentVolumeClaim.claimName "initContainer" .Values.models.initContainer.image -}}
{{- range $other, $value := $sources -}}
{{- if and $value (ne $other $source) -}}
{{- fail (printf "models.%s is set, but models.source is %s: choose one" $other $source) -}}
{{- end -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if lt (mulf .Values.autoscaling.queueSeconds 1000 | int64) 1 -}}
{{- fail "autoscaling.queueSeconds must be at least 0.001" -}}
{{- end -}}
{{- if eq (int .Values.service.grpcPort) (int .Values.service.metricsPort) -}}
{{- fail "service.grpcPort and service.metricsPort are the same" -}}
{{- end -}}
{{- range list "app.kubernetes.io/name" "app.kubernetes.io/instance" -}}
{{- if hasKey $.Values.podLabels . -}}
{{- fail (printf "podLabels may not have %s: the Services select the pods by it" .) -}}
{{- end -}}
{{- end -}}
{{- $chosen := include "dragoman.config" . | fromYaml -}}
{{- range .Values.extraEnv -}}
{{- if hasKey $chosen .name -}}
{{- fail (printf "extraEnv sets %s, which the chart sets by config, drain or models" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
