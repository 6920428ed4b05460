{{- define "dragoman.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* A release's name may hold dots, the name of a Service may not. */}}
{{- define "dragoman.fullname" -}}
{{- $name := .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $name = .Release.Name -}}
{{- if not (contains (include "dragoman.name" .) $name) -}}
{{- $name = printf "%s-%s" $name (include "dragoman.name" .) -}}
{{- end -}}
{{- end -}}
{{- $name | replace "." "-" | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "dragoman.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dragoman.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "dragoman.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "dragoman.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "dragoman.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- if .Values.gpu.enabled -}}{{- $tag = printf "%s-gpu" $tag -}}{{- end -}}
{{- .Values.image.repository -}}:{{- $tag -}}
{{- with .Values.image.digest -}}@{{- . -}}{{- end -}}
{{- end -}}

{{/* All settings of the server: the user's, and over them what the chart itself decides. */}}
{{- define "dragoman.config" -}}
{{- $config := deepCopy (.Values.config | default dict) -}}
{{- $server := dict "listen" "0.0.0.0:50051" "endpoint_removal_seconds" .Values.drain.endpointRemovalSeconds "drain_seconds" .Values.drain.seconds -}}
{{- $chosen := dict "server" $server "metrics" (dict "listen" "0.0.0.0:9464") -}}
{{- if .Values.gpu.enabled -}}
{{- $chosen = merge $chosen (dict "engine" (dict "provider" "cuda")) -}}
{{- end -}}
{{- if ne .Values.models.source "embedded" -}}
{{- $directories := list -}}
{{- range .Values.models.bundles -}}{{- $directories = append $directories (printf "%s/%s" $.Values.models.mountPath .) -}}{{- end -}}
{{- $chosen = merge $chosen (dict "models" (dict "bundles" (join ":" $directories))) -}}
{{- end -}}
{{- range $section, $fields := mergeOverwrite $config $chosen }}
{{- range $field, $value := $fields }}
DRAGOMAN_{{ upper $section }}__{{ upper $field }}: {{ if kindIs "string" $value }}{{ $value | quote }}{{ else if kindIs "slice" $value }}{{ join ":" $value | quote }}{{ else }}{{ toJson $value | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* preStop, then what the server takes from SIGTERM on: removal of endpoints, up to 3 s until calls on the wire are in,
     draining, up to 1 s of refusing, 1 s for the last answers, up to 2 s for the last traces; and 5 s to spare. */}}
{{- define "dragoman.gracePeriodSeconds" -}}
{{- add .Values.drain.preStopSeconds .Values.drain.endpointRemovalSeconds 3 .Values.drain.seconds 1 1 2 5 -}}
{{- end -}}

{{- define "dragoman.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "dragoman.scalingBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  policies:
    - {type: Percent, value: 100, periodSeconds: 30}
    - {type: Pods, value: 2, periodSeconds: 30}
  selectPolicy: Max
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.scaleDownStabilizationSeconds }}
  policies:
    - {type: Pods, value: 1, periodSeconds: 60}
{{- end -}}

{{/* Where spans are sent, the collector's port and the resolver of its name are open. */}}
{{- define "dragoman.tracingEgress" -}}
{{- $config := .Values.config | default dict -}}
{{- $endpoint := ($config.tracing | default dict).endpoint | default "" -}}
{{- if $endpoint -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    - {port: {{ regexFind "[0-9]+/?$" $endpoint | trimSuffix "/" }}, protocol: TCP}
{{- end -}}
{{- end -}}
