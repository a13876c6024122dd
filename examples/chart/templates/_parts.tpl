{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The file of settings: what the values say, and the number of instances. */}}
{{- define "sluice.config" -}}
{{- $nodes := ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled -}}
{{- toYaml (mergeOverwrite (dict "quotas" (dict "nodes" $nodes)) (deepCopy .Values.config)) }}
{{- end }}
