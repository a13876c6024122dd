/** Metrics of the process as a whole, under the names every Prometheus client library uses. Main thread. */
import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { Counter, Gauge, Registry } from 'prom-client'

export type ProcessMetrics = ReturnType<typeof createProcessMetrics>

/** The states of a serve thread, as the label of `gateway_threads`. */
export const THREAD_STATES = ['up', 'silent', 'down'] as const

const OWN_PACKAGE = new URL('../../package.json', import.meta.url)

export function createProcessMetrics() {
  const registry = new Registry()
  const registers = [registry]
  const { version } = JSON.parse(readFileSync(OWN_PACKAGE, 'utf8')) as { version: string }
  const threads = new Gauge({
    name: 'gateway_threads',
    help: 'Serve threads: answering, not answering in time, or waiting for their restart',
    labelNames: ['state'] as const,
    registers,
  })
  for (const state of THREAD_STATES) threads.set({ state }, 0)
  const restarts = new Counter({
    name: 'gateway_thread_restarts_total',
    help: 'Serve threads that died and were started again',
    registers,
  })
  const quotaDegraded = new Gauge({
    name: 'gateway_quota_degraded',
    help: '1 while Redis does not answer and limits go on by the share of this instance',
    registers,
  })
  const storageUp = new Gauge({
    name: 'gateway_storage_up',
    help: '1 while the database can be reached, 0 while it cannot',
    registers,
  })
  new Gauge({
    name: 'gateway_build_info',
    help: 'Always 1; the label tells which version runs',
    labelNames: ['version'] as const,
    registers,
  }).set({ version }, 1)
  new Gauge({
    name: 'process_start_time_seconds',
    help: 'When the process started, Unix time',
    registers,
  }).set((Date.now() - process.uptime() * 1000) / 1000)
  new Counter({
    name: 'process_cpu_seconds_total',
    help: 'Processor time of all threads, user and system',
    registers,
    collect() {
      const { user, system } = process.cpuUsage()
      this.reset()
      this.inc((user + system) / 1e6)
    },
  })
  new Gauge({
    name: 'process_resident_memory_bytes',
    help: 'Memory of the process that is in RAM',
    registers,
    collect() {
      this.set(process.memoryUsage.rss())
    },
  })
  if (process.platform === 'linux') fileDescriptors(registers)
  const credentials = new Gauge({
    name: 'gateway_credentials',
    help: 'Stored provider keys, by the master key that wraps them',
    labelNames: ['key_id'] as const,
    registers,
  })
  return { registry, threads, restarts, quotaDegraded, storageUp, credentials }
}

function fileDescriptors(registers: Registry[]): void {
  new Gauge({
    name: 'process_open_fds',
    help: 'Open file descriptors, sockets included',
    registers,
    async collect() {
      this.set((await readdir('/proc/self/fd')).length)
    },
  })
  new Gauge({
    name: 'process_max_fds',
    help: 'How many file descriptors the process may open',
    registers,
    async collect() {
      const limit = /^Max open files\s+(\d+)/m.exec(await readFile('/proc/self/limits', 'utf8'))?.[1]
      if (limit !== undefined) this.set(Number(limit))
    },
  })
}
