{{- define "taffrail.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of everything within the namespace. 50 leaves room for what is put behind it. */}}
{{- define "taffrail.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "taffrail.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "taffrail.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "taffrail.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The name of things that belong to no namespace: two releases of one name in two namespaces do not meet. */}}
{{- define "taffrail.clusterWideName" -}}
{{- printf "%s-%s" (include "taffrail.namespace" .) (include "taffrail.fullname" .) -}}
{{- end -}}

{{- define "taffrail.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "taffrail.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "taffrail.selectorLabels" -}}
app.kubernetes.io/name: {{ include "taffrail.name" . | printf "%s-operator" | trunc 63 }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "taffrail.labels" -}}
{{ include "taffrail.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: taffrail
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The annotations of an object, with the word in front, or nothing. Takes a dict of `root` and `annotations`. */}}
{{- define "taffrail.annotations" -}}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "taffrail.image" -}}
{{- $repository := required "image.repository must be set: the repository that you pushed the Taffrail image to, for example --set image.repository=registry.example.com/taffrail" .Values.image.repository -}}
{{- with .Values.image.registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The rules for what a Cluster and its Topics need, in a namespace or in all. */}}
{{- define "taffrail.rules" -}}
- apiGroups: [taffrail.io]
  resources: [clusters, topics]
  verbs: [list, watch, patch]
- apiGroups: [taffrail.io]
  resources: [clusters/status, topics/status]
  verbs: [patch]
# Lets it own what it makes: blockOwnerDeletion is refused without, where that is enforced.
- apiGroups: [taffrail.io]
  resources: [clusters/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
