/** The chart: Helm takes it, Kubernetes' types and checks take what it renders, and the gateway takes its settings. */
import { execFile } from 'node:child_process'
import { readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { loadConfig } from '../src/process/config/config.ts'
import {
  CHART,
  CHART_MODULES,
  helm,
  type Manifest,
  manifestsOf,
  podOf,
  renderChart,
  withoutHelm,
} from './support/chart.ts'
import { PRODUCT_ENVIRONMENT } from './support/product.ts'

const ROOT = join(import.meta.dirname, '..')
const read = (name: string): string => readFileSync(join(ROOT, name), 'utf8')

/** Every branch of the templates is in one of them. */
const VALUES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'as it is': {},
  'without a claim, with everything else': {
    image: { tag: '1.2.3', pullSecrets: ['registry'] },
    config: { timeouts: { drainMs: 120_500 }, quotas: { nodes: 3 }, capture: { maxBytes: 1_073_741_824 } },
    secret: { files: { REDIS_URL: null }, variables: { OPENAI_API_KEY: 'openai-api-key' } },
    environment: { LOG_LEVEL: 'error' },
    data: { claim: false },
    autoscaling: { openStreams: 500 },
    service: { annotations: { 'example.com/scheme': 'internal' } },
    monitoring: {
      scrape: true,
      alerts: true,
      labels: { release: 'prometheus' },
      runbooks: 'https://git.example.com/sluice/',
    },
    pod: { nodeSelector: { zone: 'a' }, tolerations: [{ key: 'gateway', operator: 'Exists' }] },
  },
  'with a fixed number of pods': {
    replicas: 3,
    autoscaling: { enabled: false },
    data: { storageClass: 'fast' },
  },
}

/** Where the type and the check of a manifest are. */
function modelOf({ apiVersion, kind }: Manifest): string {
  if (apiVersion === 'v1') return `kubernetes-models/v1/${kind}`
  if (apiVersion.startsWith('monitoring.coreos.com/'))
    return `@kubernetes-models/prometheus-operator/${apiVersion}/${kind}`
  return `kubernetes-models/${apiVersion}/${kind}`
}

const run = promisify(execFile)
const COMPILING = {
  compilerOptions: { noEmit: true, strict: true, skipLibCheck: true, module: 'nodenext', types: [] },
  files: ['manifests.ts'],
}

/** What the compiler says of them as literals of Kubernetes' types, which a field too many contradicts. */
async function typeFaults(folder: string, manifests: readonly Manifest[]): Promise<string> {
  const lines = manifests.flatMap((manifest, at) => [
    `import type { I${manifest.kind} as Type${at} } from '${modelOf(manifest)}'`,
    `export const manifest${at}: Type${at} = ${JSON.stringify(manifest, null, 1)}`,
  ])
  writeFileSync(join(folder, 'manifests.ts'), `${lines.join('\n')}\n`)
  // Without the hooks of the test runner, which the compiler does not take.
  return run('env', ['-u', 'NODE_OPTIONS', process.execPath, join(ROOT, 'node_modules/typescript/bin/tsc')], {
    cwd: folder,
    env: PRODUCT_ENVIRONMENT,
  }).then(
    () => '',
    (error: { stdout: string; message: string }) => error.stdout || error.message,
  )
}

/** What Kubernetes' schemas say of one: formats, numbers, and fields that must be there. */
async function schemaFault(manifest: Manifest): Promise<string | null> {
  const file = pathToFileURL(join(CHART_MODULES, `${modelOf(manifest)}.js`)).href
  const models = (await import(file)) as Record<string, new (data: Manifest) => { validate(): void }>
  const Model = models[manifest.kind]
  if (Model === undefined) return `no schema of ${manifest.kind}`
  try {
    new Model(manifest).validate()
    return null
  } catch (error) {
    return `${manifest.kind}: ${(error as Error).message}`
  }
}

function typedFolder(t: Test): string {
  const folder = t.testdir({
    'package.json': '{"type":"module"}',
    'tsconfig.json': JSON.stringify(COMPILING),
  })
  symlinkSync(CHART_MODULES, join(folder, 'node_modules'))
  return folder
}

t.test('Helm takes the chart, whatever its values', { skip: withoutHelm }, async t => {
  for (const [name, values] of Object.entries(VALUES)) {
    const { status, stdout } = helm(['lint', '--strict', '--quiet'], values)
    t.equal(status, 0, `${name}: ${stdout}`)
  }
  for (const [values, words] of [
    [{ replicaz: 3 }, /additional properties 'replicaz' not allowed/],
    [{ config: { timeouts: { drainMs: '30s' } } }, /'\/config\/timeouts\/drainMs': got string, want integer/],
    [{ secret: { files: { DATABASE_URL: 'postgres://user@host/name' } } }, /does not match pattern/],
    [{ environment: { LOG_LEVEL: 3 } }, /'\/environment\/LOG_LEVEL': got number, want string/],
  ] as const) {
    const { status, stderr } = helm(['template', 'sluice'], values)
    t.equal(status, 1)
    t.match(stderr, words)
  }
})

t.test('what it renders is of the types of Kubernetes', { skip: withoutHelm }, async t => {
  const folder = typedFolder(t)
  const sets = Object.values(VALUES).map(renderChart)
  const manifests = [...sets.flat(), ...manifestsOf(read('examples/kubernetes.yaml'))]
  t.equal(await typeFaults(folder, manifests), '')
  for (const manifest of manifests) t.equal(await schemaFault(manifest), null)
  t.same(
    sets.map(set => set.map(({ kind }) => kind).sort()),
    [
      ['ConfigMap', 'HorizontalPodAutoscaler', 'PodDisruptionBudget', 'Service', 'Service', 'StatefulSet'],
      [
        'ConfigMap',
        'Deployment',
        'HorizontalPodAutoscaler',
        'PodDisruptionBudget',
        'PrometheusRule',
        'Service',
        'Service',
        'ServiceMonitor',
      ],
      ['ConfigMap', 'PodDisruptionBudget', 'Service', 'Service', 'StatefulSet'],
    ],
  )
})

t.test(
  'the types see a field that does not exist, and the schemas a wrong value',
  { skip: withoutHelm },
  async t => {
    const folder = typedFolder(t)
    const manifests = renderChart()
    const wrong = JSON.stringify(manifests).replace('"readOnlyRootFilesystem"', '"readOnlyRoot"')
    t.match(
      await typeFaults(folder, JSON.parse(wrong) as Manifest[]),
      /readOnlyRoot\S* does not exist in type/,
    )
    const half = JSON.stringify(manifests).replace('"minReplicas":2,', '"minReplicas":2.5,')
    const faults = await Promise.all((JSON.parse(half) as Manifest[]).map(schemaFault))
    t.match(
      faults.filter(fault => fault !== null),
      [/^HorizontalPodAutoscaler: .*minReplicas/],
    )
  },
)

t.test('pods are those of examples/kubernetes.yaml', { skip: withoutHelm }, async t => {
  const plain = podOf(manifestsOf(read('examples/kubernetes.yaml')))
  const chart = podOf(renderChart({ data: { claim: false } }))
  const { fsGroupChangePolicy, ...securityContext } = chart.pod.securityContext
  t.equal(fsGroupChangePolicy, 'OnRootMismatch')
  t.same(securityContext, plain.pod.securityContext)
  t.equal(chart.pod.terminationGracePeriodSeconds, plain.pod.terminationGracePeriodSeconds)
  for (const field of [
    'image',
    'args',
    'ports',
    'startupProbe',
    'livenessProbe',
    'readinessProbe',
    'resources',
    'securityContext',
    'volumeMounts',
  ])
    t.same(Reflect.get(chart.container, field), Reflect.get(plain.container, field), field)
})

t.test('parts fit each other', { skip: withoutHelm }, async t => {
  for (const values of Object.values(VALUES)) {
    const manifests = renderChart(values)
    const { pod, container } = podOf(manifests)
    const workload = manifests.find(({ spec }) => spec?.template !== undefined)
    const labels = workload?.spec.template?.metadata.labels
    t.same(workload?.spec.selector, { matchLabels: labels })
    const ports = new Set(container.ports.map(({ name }) => name))
    for (const { kind, spec } of manifests)
      if (kind === 'Service') {
        t.same(spec.selector, labels)
        for (const { targetPort } of spec.ports ?? []) t.ok(ports.has(targetPort), targetPort)
      }
    const claims = workload?.spec.volumeClaimTemplates ?? []
    const volumes = [...pod.volumes.map(({ name }) => name), ...claims.map(({ metadata }) => metadata.name)]
    t.same(container.volumeMounts.map(({ name }) => name).sort(), volumes.sort())
    t.same(
      manifests
        .filter(({ kind }) => kind === 'HorizontalPodAutoscaler')
        .map(({ spec }) => spec.scaleTargetRef),
      workload?.spec.replicas === undefined
        ? [{ apiVersion: 'apps/v1', kind: workload?.kind, name: 'sluice' }]
        : [],
    )
  }
})

t.test('the gateway takes the settings, and has time for its drain', { skip: withoutHelm }, async t => {
  const folder = t.testdir({})
  const file = join(folder, 'gateway.yaml')
  const times = Object.values(VALUES).map(values => {
    const manifests = renderChart(values)
    const text = manifests.find(({ kind }) => kind === 'ConfigMap')?.data?.['gateway.yaml'] ?? ''
    writeFileSync(file, text)
    const { timeouts, quotas } = loadConfig(['--config', file], {})
    const { pod } = podOf(manifests)
    const drainMs = timeouts.drainDelayMs + timeouts.drainMs
    // Five seconds are the gateway's, to store the last records.
    t.ok(pod.terminationGracePeriodSeconds * 1000 >= drainMs + 10_000)
    return [pod.terminationGracePeriodSeconds, quotas.nodes]
  })
  t.same(times, [
    [45, 10],
    [136, 3],
    [45, 3],
  ])
})

t.test('rules and versions are those of the repository', { skip: withoutHelm }, async t => {
  const groupsOf = (runbooks: string) =>
    renderChart({ monitoring: { alerts: true, runbooks } }).find(({ kind }) => kind === 'PrometheusRule')
      ?.spec.groups
  const { groups } = parse(read('grafana/alerts.yaml')) as { groups: unknown }
  t.same(groupsOf(''), groups)
  const moved = JSON.stringify(groups).replaceAll('"docs/', '"https://git.example.com/sluice/docs/')
  t.equal(JSON.stringify(groupsOf('https://git.example.com/sluice')), moved)
  const { version } = JSON.parse(read('package.json')) as { version: string }
  const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as { appVersion: string }
  t.equal(chart.appVersion, version)
})
