/** The product as users start it, observed from outside: its memory, descriptors and metrics belong to it alone. */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { freePort } from './free-port.ts'
import { MAIN, PRODUCT_ENVIRONMENT, PRODUCT_FLAGS } from './product.ts'
import { eventually } from './stream-probe.ts'

export interface GatewayProcess {
  readonly pid: number
  /** Without `/v1`. */
  readonly url: string
  readonly port: number
  readonly adminUrl: string
  readonly apiKey: string
  /** Resident bytes now. */
  rssBytes(): number
  /** The highest since the start or the last `forgetPeak`. */
  peakRssBytes(): number
  forgetPeak(): void
  /** Open file descriptors. */
  descriptors(): number
  /** User and system time of all threads so far. */
  cpuMs(): number
  /** The sum over all series of a metric that carry these labels, as the admin port tells it. */
  metric(name: string, labels?: Readonly<Record<string, string>>): Promise<number>
  stderr(): string
  /** The log so far. */
  stdout(): string
  /** Path of its configuration file. */
  readonly configFile: string
  /** SIGTERM; the exit code. */
  stop(): Promise<number | null>
  /** SIGKILL; resolves when the process is gone, and what it held with it. */
  kill(): Promise<void>
}

interface StartOptions {
  /** Whether to wait until it says that it is ready: not where its database is away. Default true. */
  readonly ready?: boolean
}

/** How long a gateway that listens may take on a busy machine until it is ready. */
const START_MS = 120_000

/** Refusing under load has its own suite; on a busy machine it would answer instead of what is tested. */
export const NO_SHEDDING = { maxLagMs: 3_600_000 } as const

/**
 * Starts the product on free ports with this configuration file, and kills it with the test.
 * @param settings the configuration file; JSON is YAML
 * @param descriptorLimit as far as the system allows it
 */
export async function startGatewayProcess(
  t: Pick<Test, 'teardown'>,
  settings: Readonly<Record<string, unknown>>,
  environment: Readonly<Record<string, string>> = {},
  descriptorLimit = 65_536,
  { ready = true }: StartOptions = {},
): Promise<GatewayProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-heavy-'))
  writeFileSync(join(folder, 'gateway.yaml'), JSON.stringify(settings))
  const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
  // Threads share their port, and would share it with those of another gateway that chose the same one meanwhile.
  const port = Number(environment['GATEWAY_SERVE_THREADS'] ?? 1) > 1 ? await freePort() : 0
  // The shell is replaced by the gateway, so the process id is the gateway's.
  const child = spawn(
    'sh',
    [
      '-c',
      `ulimit -n ${descriptorLimit} 2>/dev/null; exec "$@"`,
      'sh',
      process.execPath,
      ...PRODUCT_FLAGS,
      MAIN,
      '--config',
      'gateway.yaml',
    ],
    {
      cwd: folder,
      env: {
        ...PRODUCT_ENVIRONMENT,
        GATEWAY_PORT: String(port),
        GATEWAY_ADMIN_PORT: '0',
        GATEWAY_SERVE_THREADS: '1',
        GATEWAY_API_KEY: apiKey,
        ...environment,
      },
    },
  )
  let stderr = ''
  let stdout = ''
  child.stdout.on('data', (chunk: Buffer) => {
    stdout = (stdout + chunk.toString()).slice(-100_000)
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-100_000)
  })
  const closed = once(child, 'close')
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    await closed
    rmSync(folder, { recursive: true, force: true })
  })
  const { url, adminUrl } = await listening(child.stdout, closed, () => stderr)
  // It listens before its store is prepared, and answers 503 until then.
  if (ready && !(await eventually(async () => (await fetch(`${adminUrl}/readyz`)).ok, START_MS)))
    throw new Error(`the gateway does not become ready: ${stderr}`)
  const pid = child.pid ?? 0
  return {
    pid,
    url,
    port: Number(new URL(url).port),
    adminUrl,
    apiKey,
    rssBytes: () => statusBytes(pid, 'VmRSS'),
    peakRssBytes: () => statusBytes(pid, 'VmHWM'),
    forgetPeak: () => writeFileSync(`/proc/${pid}/clear_refs`, '5'),
    descriptors: () => readdirSync(`/proc/${pid}/fd`).length,
    cpuMs: () => cpuMs(pid),
    async metric(name, labels = {}) {
      const reply = await fetch(`${adminUrl}/metrics`)
      return sumOf(await reply.text(), name, labels)
    },
    stderr: () => stderr,
    stdout: () => stdout,
    configFile: join(folder, 'gateway.yaml'),
    async stop() {
      child.kill('SIGTERM')
      const [code] = (await closed) as [number | null]
      return code
    },
    async kill() {
      child.kill('SIGKILL')
      await closed
    },
  }
}

/** Reads the log for its `listening` line, and goes on reading so that the gateway never waits for its reader. */
async function listening(
  stdout: NodeJS.ReadableStream,
  closed: Promise<unknown>,
  stderr: () => string,
): Promise<{ url: string; adminUrl: string }> {
  let text = ''
  const found = Promise.withResolvers<{ url: string; adminUrl: string }>()
  stdout.setEncoding('utf8').on('data', (more: string) => {
    if (text === 'found') return
    text += more
    const line = /^.*"msg":"listening".*(?=\n)/m.exec(text)?.[0]
    if (line === undefined) return
    text = 'found'
    found.resolve(JSON.parse(line) as { url: string; adminUrl: string })
  })
  void closed.then(() => found.reject(new Error(`the gateway did not start: ${stderr()}`)))
  return found.promise
}

function statusBytes(pid: number, field: string): number {
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  return Number(match?.[1]) * 1024
}

/** Clock ticks are 10 ms on every Linux that Node runs on. */
function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * 10
}

function sumOf(text: string, name: string, labels: Readonly<Record<string, string>>): number {
  let sum = 0
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name} `) && !line.startsWith(`${name}{`)) continue
    const wanted = Object.entries(labels).every(([label, value]) => line.includes(`${label}="${value}"`))
    if (wanted) sum += Number(line.slice(line.lastIndexOf(' ') + 1))
  }
  return sum
}
