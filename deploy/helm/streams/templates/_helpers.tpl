{{- define "streams.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "streams.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "streams.labels" -}}
{{ include "streams.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "streams.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}

{{- define "streams.tokenSecret" -}}
{{ default (printf "%s-token" (include "streams.name" .)) .Values.http.existingSecret }}
{{- end -}}

{{- define "streams.serviceAccount" -}}
{{ default (ternary (include "streams.name" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end -}}

{{- define "streams.secretEnv" -}}
{{- range $name, $from := .Values.secrets }}
- name: STREAMS_{{ upper $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.secret }}
      key: {{ $from.key }}
{{- end }}
{{- end -}}

{{- /* The server listens on the pod's address and asks for the token; a probe reads it from its file. */ -}}
{{- define "streams.probe" -}}
exec:
  command:
    - python
    - -c
    - >-
      import urllib.request as r;
      token = open("/etc/streams/token/token").read().strip();
      r.urlopen(r.Request("http://127.0.0.1:{{ .port }}{{ .path }}", headers={"Authorization": "Bearer " + token}), timeout={{ .timeout }})
{{- end -}}
