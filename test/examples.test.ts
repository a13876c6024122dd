import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { loadConfig } from '../src/process/config/config.ts'

const EXAMPLES = join(import.meta.dirname, '../examples')

const missing = (command: string): string | false =>
  spawnSync(command, [command === 'systemd-analyze' ? '--version' : '-v']).error === undefined
    ? false
    : `${command} is not installed`

/** A certificate with its key, made for this test. */
function certificate(folder: string): { readonly pem: string; readonly key: string; readonly both: string } {
  const [key, pem, both] = [join(folder, 'key.pem'), join(folder, 'cert.pem'), join(folder, 'both.pem')]
  const words = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    '/CN=test',
    '-keyout',
    key,
    '-out',
    pem,
  ]
  const made = spawnSync('openssl', words)
  if (made.status !== 0) throw new Error(made.stderr.toString())
  writeFileSync(both, readFileSync(pem, 'utf8') + readFileSync(key, 'utf8'))
  return { pem, key, both }
}

t.test('nginx takes its example', { skip: missing('nginx') }, async t => {
  const folder = t.testdir({})
  const { pem, key } = certificate(folder)
  const example = readFileSync(join(EXAMPLES, 'nginx.conf'), 'utf8')
    .replace('/etc/ssl/certs/gateway.pem', pem)
    .replace('/etc/ssl/private/gateway.key', key)
  const file = join(folder, 'nginx.conf')
  writeFileSync(file, `pid ${folder}/pid; events {}\nhttp {\naccess_log off;\n${example}}\n`)
  const { status, stderr } = spawnSync('nginx', ['-t', '-c', file, '-e', join(folder, 'errors')], {
    encoding: 'utf8',
  })
  t.equal(status, 0, stderr)
})

t.test('HAProxy takes its example', { skip: missing('haproxy') }, async t => {
  const folder = t.testdir({})
  const example = readFileSync(join(EXAMPLES, 'haproxy.cfg'), 'utf8').replace(
    '/etc/haproxy/gateway.pem',
    certificate(folder).both,
  )
  const file = join(folder, 'haproxy.cfg')
  writeFileSync(file, example)
  const { status, stderr } = spawnSync('haproxy', ['-c', '-f', file], { encoding: 'utf8' })
  t.equal(status, 0, stderr)
})

/** The parts of a manifest that this test reads. */
interface Manifest {
  readonly kind: string
  readonly spec: {
    readonly selector?: unknown
    readonly ports?: readonly { readonly targetPort: string }[]
    readonly template?: { readonly metadata: { readonly labels: Record<string, string> }; readonly spec: Pod }
  }
}

interface Pod {
  readonly terminationGracePeriodSeconds: number
  readonly securityContext: Record<string, unknown>
  readonly volumes: readonly { readonly name: string }[]
  readonly containers: readonly {
    readonly env: readonly { readonly name: string; readonly value: string }[]
    readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
    readonly securityContext: Record<string, unknown>
    readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
  }[]
}

const read = (name: string): string => readFileSync(join(EXAMPLES, name), 'utf8')
/** The image's own, in seconds: what a drain may take, and the storing of the last records. */
const drainSeconds = (): number => {
  const { drainMs } = loadConfig([], {}).timeouts
  return drainMs / 1000 + 5
}

t.test('manifests of Kubernetes fit the image and each other', async t => {
  const documents = parseAllDocuments(read('kubernetes.yaml'))
  for (const document of documents) t.same(document.errors, [])
  const manifests = documents.map(document => document.toJS() as Manifest)
  t.same(
    manifests.map(({ kind }) => kind),
    ['Deployment', 'Service', 'Service', 'PodDisruptionBudget', 'HorizontalPodAutoscaler', 'ServiceMonitor'],
  )
  const template = manifests[0]?.spec.template
  const pod = template?.spec
  const [container] = pod?.containers ?? []
  if (template === undefined || pod === undefined || container === undefined) throw new Error('no pod')
  t.ok(pod.terminationGracePeriodSeconds > drainSeconds() + 5, 'five seconds of drainDelayMs, and the drain')
  t.match(pod.securityContext, { runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000 })
  t.match(read('../Dockerfile'), 'USER 1000:1000')
  t.match(container.securityContext, { readOnlyRootFilesystem: true, allowPrivilegeEscalation: false })
  const volumes = new Set(pod.volumes.map(({ name }) => name))
  for (const { name, mountPath } of container.volumeMounts) {
    t.ok(volumes.has(name), name)
    t.match(mountPath, /^\/(?:app\/data|tmp|etc\/sluice|run\/sluice)$/)
  }
  const ports = new Set(container.ports.map(({ name }) => name))
  for (const { kind, spec } of manifests)
    if (kind === 'Service') {
      t.same(spec.selector, template.metadata.labels)
      for (const { targetPort } of spec.ports ?? []) t.ok(ports.has(targetPort), targetPort)
    }
  for (const { name } of container.env)
    t.match(readFileSync(join(EXAMPLES, '../docs/configuration.md'), 'utf8'), name.replace(/_FILE$/, ''))
})

t.test('the compose file stops after a drain and runs as hardened as the image allows', async t => {
  const { services, secrets } = parse(read('compose.yaml')) as {
    readonly services: Record<string, Record<string, unknown>>
    readonly secrets: Record<string, unknown>
  }
  t.same(Object.keys(services), ['sluice', 'database', 'redis', 'prometheus', 'grafana'])
  const { sluice = {} } = services
  t.ok(Number.parseInt(String(sluice['stop_grace_period']), 10) > drainSeconds())
  t.match(sluice, { read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] })
  for (const service of Object.values(services))
    for (const name of (service['secrets'] ?? []) as string[]) t.ok(name in secrets, name)
})

t.test('systemd takes the unit', { skip: missing('systemd-analyze') }, async t => {
  const folder = t.testdir({})
  const unit = join(folder, 'sluice.service')
  const text = read('sluice.service').replace('/opt/sluice/node_modules/.bin/sluice', '/bin/true')
  writeFileSync(unit, text.replace('User=sluice', 'User=root'))
  const { stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', unit], { encoding: 'utf8' })
  const faults = stderr.split('\n').filter(line => line.includes('sluice.service'))
  t.same(faults, [])
})
