/**
 * The pod of the chart as its manifest says: the command, user, root, mounts, secrets, memory and times, in a container
 * of bubblewrap with the files of the image. SIGTERM amid 500 streams costs none of them within the grace period.
 */
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import t, { type Test } from 'tap'
import { ownPostgres, WITHOUT_POSTGRES_SERVER } from '../storage/postgres-server.ts'
import { type Container, type Manifest, type Pod, podOf, renderChart, withoutHelm } from '../support/chart.ts'
import { freePort } from '../support/free-port.ts'
import { ownRedis, WITHOUT_REDIS } from '../support/redis-server.ts'
import { eventually, openProbe, pause } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

const ROOT = join(import.meta.dirname, '../..')
const STREAMS = 500
/** Each token after 25 ms: streams of some seconds. */
const MODEL = 'write-200-25'
/** What the Dockerfile copies into the image. */
const IMAGE_FILES = ['package.json', 'LICENSE', 'NOTICE', 'node_modules', 'bin', 'dist']
const MEMORY_GROUPS = '/sys/fs/cgroup/memory'

t.setTimeout(300_000)

const needsRoot = process.getuid?.() === 0 ? false : 'makes a container, which needs root'
const needsBwrap =
  process.env['CI'] === 'true' || spawnSync('bwrap', ['--version']).status === 0
    ? false
    : 'bwrap is not installed'
const skip = withoutHelm || WITHOUT_POSTGRES_SERVER || WITHOUT_REDIS || needsBwrap || needsRoot

interface Running {
  /** Of the gateway, outside of its container. */
  readonly pid: number
  readonly url: string
  readonly adminUrl: string
  readonly exited: Promise<number | null>
  output(): string
}

t.test('the pod of the chart starts, and its drain loses no stream', { skip }, async t => {
  t.ok(existsSync(join(ROOT, 'dist/cli.js')), 'the gateway is compiled, as in the image')
  const providers = await startProviders(t)
  const [database, redis] = [await ownPostgres(t), await ownRedis(t)]
  await Promise.all([database.start(), redis.start()])
  const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
  const secrets: Readonly<Record<string, string>> = {
    'vault-keys': `k1:${randomBytes(32).toString('base64')}`,
    'management-key': managementKey,
    'database-url': database.url,
    'redis-url': redis.url,
  }
  const manifests = renderChart({
    config: { ...providers.settings({ sim: [MODEL] }), timeouts: { drainDelayMs: 2_000, drainMs: 30_000 } },
  })
  const { pod, container } = podOf(manifests)
  const running = await startContainer(t, manifests, pod, container, secrets)

  await untilProbed(running, container)
  const status = readFileSync(`/proc/${running.pid}/status`, 'utf8')
  t.match(status, /^Uid:\t1000\t1000\t1000\t1000$/m)
  t.match(status, /^Gid:\t1000\t1000\t1000\t1000$/m)
  t.match(status, /^CapEff:\t0+$/m)
  t.match(status, /^CapBnd:\t0+$/m)
  t.match(status, /^NoNewPrivs:\t1$/m)
  for (const path of ['app/written', 'written', 'etc/sluice/written', 'run/sluice/written'])
    t.throws(() => writeFileSync(`/proc/${running.pid}/root/${path}`, ''), { code: 'EROFS' }, path)

  const made = await fetch(`${running.url}/v1/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'probe' }),
  })
  t.equal(made.status, 201)
  const { key: apiKey } = (await made.json()) as { key: string }
  const target = { port: Number(new URL(running.url).port), apiKey }
  const body = { model: `sim/${MODEL}`, input: 'Write', stream: true }
  const probes = Array.from({ length: STREAMS }, () => openProbe(body, target))
  t.ok(await eventually(() => probes.every(probe => probe.events > 5), 60_000), 'all streams run')

  const [, peakKib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${running.pid}/status`, 'utf8')) ?? []
  const sinceMs = performance.now()
  process.kill(running.pid, 'SIGTERM')
  const [ready] = await Promise.all([
    eventually(async () => (await fetch(`${running.adminUrl}/readyz`)).status === 503, 5_000),
    // Endpoints are taken out a moment later: what comes until then is served.
    openProbe(body, target).result.then(late => t.equal(late.last, 'response.completed', 'a late request')),
  ])
  t.ok(ready, 'it is not ready any more')
  const results = await Promise.all(probes.map(probe => probe.result))
  const code = await running.exited
  const tookSeconds = (performance.now() - sinceMs) / 1000
  const completed = results.filter(
    ({ last, done, fault }) => last === 'response.completed' && done && fault === null,
  )
  t.equal(completed.length, STREAMS, 'streams that were completed')
  t.equal(code, 0, `exit code: ${running.output().slice(-300)}`)
  t.ok(tookSeconds < pod.terminationGracePeriodSeconds, `${tookSeconds.toFixed(1)} s`)

  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const { rows } = await client.query('select count(*)::int as many from usage')
  await client.end()
  t.same(rows, [{ many: STREAMS + 1 }], 'every stream has its usage record in the database')
  t.comment(
    `${completed.length} of ${STREAMS} streams completed, exit after ${tookSeconds.toFixed(1)} s of ` +
      `${pod.terminationGracePeriodSeconds} s; ${Math.round(Number(peakKib) / 1024)} MiB resident with all streams`,
  )
})

/** Mounts of the pod as folders of this machine, with what is in them and whose they are. */
function mountsOf(folder: string, manifests: readonly Manifest[], secrets: Readonly<Record<string, string>>) {
  const settings = manifests.find(({ kind }) => kind === 'ConfigMap')?.data ?? {}
  const write = (name: string, files: Readonly<Record<string, string>>, mode: number) => {
    const path = join(folder, name)
    mkdirSync(path)
    for (const [file, text] of Object.entries(files)) {
      writeFileSync(join(path, file), text)
      // The group of the pod's fsGroup reads them.
      chownSync(join(path, file), 0, 1000)
      chmodSync(join(path, file), mode)
    }
    return path
  }
  const data = write('data', {}, 0)
  chownSync(data, 0, 1000)
  chmodSync(data, 0o2770)
  return { config: write('config', settings, 0o644), secrets: write('secrets', secrets, 0o440), data }
}

/** Starts the container of the manifest; only its ports are others, since those of the pod may be taken here. */
async function startContainer(
  t: Pick<Test, 'teardown' | 'comment'>,
  manifests: readonly Manifest[],
  pod: Pod,
  container: Container,
  secrets: Readonly<Record<string, string>>,
): Promise<Running> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-pod-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const mounts: Readonly<Record<string, string>> = mountsOf(folder, manifests, secrets)
  const [port, adminPort] = [await freePort(), await freePort()]
  const environment: Readonly<Record<string, string>> = {
    PATH: '/image:/usr/bin',
    // The image's own.
    NODE_ENV: 'production',
    GATEWAY_HOST: '0.0.0.0',
    ...Object.fromEntries(container.env.map(({ name, value }) => [name, value])),
    GATEWAY_PORT: String(port),
    GATEWAY_ADMIN_PORT: String(adminPort),
  }
  const user = String(pod.securityContext['runAsUser'])
  const words = [
    ...['--unshare-pid', '--unshare-ipc', '--unshare-uts', '--as-pid-1', '--die-with-parent', '--clearenv'],
    ...Object.entries(environment).flatMap(([name, value]) => ['--setenv', name, value]),
    // What setpriv needs to become the user; it drops them.
    ...[
      '--cap-drop',
      'ALL',
      '--cap-add',
      'CAP_SETUID',
      '--cap-add',
      'CAP_SETGID',
      '--cap-add',
      'CAP_SETPCAP',
    ],
    ...['/app', '/image', '/etc', '/run', '/sys', '/sys/fs'].flatMap(path => [
      '--perms',
      '0755',
      '--dir',
      path,
    ]),
    ...['--ro-bind', '/usr', '/usr', '--symlink', 'usr/bin', '/bin', '--symlink', 'usr/lib', '/lib'],
    ...['--symlink', 'usr/lib64', '/lib64', '--proc', '/proc', '--dev', '/dev'],
    ...['--ro-bind', '/sys/fs/cgroup', '/sys/fs/cgroup'],
    ...['--ro-bind', process.execPath, '/image/node', '--symlink', '/app/bin/sluice.js', '/image/sluice'],
    ...IMAGE_FILES.flatMap(file => ['--ro-bind', join(ROOT, file), `/app/${file}`]),
    ...container.volumeMounts.flatMap(({ name, mountPath }) => {
      if (name === 'tmp') return ['--size', String(64 * 1024 * 1024), '--perms', '1777', '--tmpfs', mountPath]
      return [name === 'data' ? '--bind' : '--ro-bind', mounts[name] ?? '', mountPath]
    }),
    ...(container.securityContext['readOnlyRootFilesystem'] === true ? ['--remount-ro', '/'] : []),
    ...['--chdir', '/app', '--json-status-fd', '3', '--'],
    ...['setpriv', `--reuid=${user}`, `--regid=${pod.securityContext['runAsGroup']}`, '--clear-groups'],
    ...['--no-new-privs', '--bounding-set=-all', '--inh-caps=-all', '--'],
    ...container.args,
  ]
  const limited = limitMemory(t, container.resources.limits.memory)
  const child = spawn('sh', ['-c', `${limited}exec bwrap "$@"`, 'sh', ...words], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
  })
  let output = ''
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-20_000)
  }
  child.stdout?.on('data', keep)
  child.stderr?.on('data', keep)
  let status = ''
  child.stdio[3]?.on('data', (chunk: Buffer) => {
    status += chunk.toString()
  })
  const exited = once(child, 'close').then(([code]) => code as number | null)
  const childPid = () => Number(/"child-pid": (\d+)/.exec(status)?.[1] ?? 0)
  t.teardown(async () => {
    if (child.exitCode !== null) return
    child.kill('SIGKILL')
    await exited
  })
  if (!(await eventually(() => childPid() > 0, 10_000))) throw new Error(`no container: ${output}`)
  return {
    pid: childPid(),
    url: `http://127.0.0.1:${port}`,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    exited,
    output: () => output,
  }
}

/** The start of a shell's words that puts what it starts under the limit; empty where the machine lets nobody. */
function limitMemory(t: Pick<Test, 'teardown' | 'comment'>, limit: string): string {
  const [, amount, unit = ''] = /^(\d+)(Mi|Gi)$/.exec(limit) ?? []
  const bytes = Number(amount) * { Mi: 2 ** 20, Gi: 2 ** 30 }[unit as 'Mi' | 'Gi']
  const group = join(MEMORY_GROUPS, `sluice-chart-${process.pid}`)
  try {
    mkdirSync(group)
    writeFileSync(join(group, 'memory.limit_in_bytes'), String(bytes))
  } catch {
    t.comment('no control group of memory here: the limit is not in force')
    return ''
  }
  t.teardown(async () => {
    // It is empty when the last process of the container is gone.
    for (let tries = 0; tries < 100; tries++) {
      try {
        return rmdirSync(group)
      } catch {
        await pause(50)
      }
    }
  })
  return `echo $$ > ${group}/tasks; `
}

/** Asks as the kubelet does: the start must come within its tries; then it is alive, and some day ready. */
async function untilProbed({ adminUrl, output }: Running, container: Container): Promise<void> {
  const passes = ({ httpGet }: Container['startupProbe']) =>
    fetch(adminUrl + httpGet.path).then(
      reply => reply.ok,
      () => false,
    )
  const { startupProbe, livenessProbe, readinessProbe } = container
  const startMs = (startupProbe.failureThreshold ?? 3) * startupProbe.periodSeconds * 1000
  if (!(await eventually(() => passes(startupProbe), startMs)))
    throw new Error(`it does not start: ${output()}`)
  if (!(await passes(livenessProbe))) throw new Error(`it is not alive: ${output()}`)
  if (!(await eventually(() => passes(readinessProbe), 120_000)))
    throw new Error(`it is not ready: ${output()}`)
}
