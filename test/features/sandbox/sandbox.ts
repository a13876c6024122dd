/** Containers for tests, and targets that an escape from them would reach. */
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { type Containers, createContainers } from '../../../src/features/sandbox/containers.ts'
import type { Code } from '../../../src/features/sandbox/engine.ts'
import type { OpenTunnel } from '../../../src/features/sandbox/run-network.ts'
import type { ContainerOwner, RunReply } from '../../../src/features/sandbox/sandbox.ts'
import type { SandboxSettings } from '../../../src/features/sandbox/settings.ts'
import { listening } from '../../support/listening.ts'

export const OWNER: ContainerOwner = { organizationId: 'org-a', workspaceId: 'ws-a' }
export const OTHER: ContainerOwner = { organizationId: 'org-a', workspaceId: 'ws-b' }
export const TERMS = { sleepAfterSeconds: 900, allowedDomains: null } as const
export const SIGNAL: AbortSignal = new AbortController().signal

const SETTINGS: SandboxSettings = {
  engine: 'embedded',
  network: 'allowlist',
  timeoutMs: 25_000,
  cpuSeconds: 30,
  memoryMb: 512,
  running: 2,
  outputBytes: 65_536,
  fileMb: 4,
  storeMb: 64,
  containers: 100,
  containersPerWorkspace: 20,
}

export interface SandboxWorld {
  readonly containers: Containers
  readonly folder: string
  /** Opens a new container and runs the codes in it. */
  run(codes: readonly Code[], timeoutMs?: number): Promise<RunReply>
  close(): Promise<void>
}

export function sandboxWorld(
  settings: Partial<SandboxSettings> = {},
  clock: Clock = systemClock,
  openTunnel: OpenTunnel = () => Promise.reject(new Error('no way out')),
): SandboxWorld {
  const folder = mkdtempSync(join(tmpdir(), 'sandbox-test-'))
  const faults: unknown[] = []
  const containers = createContainers({
    settings: { ...SETTINGS, ...settings },
    folder,
    clock,
    log: { fault: (_, thrown) => void faults.push(thrown) },
    openTunnel,
  })
  return {
    containers,
    folder,
    async run(codes, timeoutMs) {
      const { id } = await containers.open(OWNER, null, TERMS)
      return containers.run(OWNER, id, { codes, timeoutMs: timeoutMs ?? null, maxOutputLength: null }, SIGNAL)
    },
    async close() {
      await containers.close()
      rmSync(folder, { recursive: true, force: true })
      if (faults.length > 0) throw faults[0]
    },
  }
}

export const shell = (text: string): Code => ({ language: 'shell', text })
export const python = (text: string): Code => ({ language: 'python', text })

/** Why the engine cannot run here; false: it can. */
export async function withoutEngine(engine: SandboxSettings['engine']): Promise<string | false> {
  const world = sandboxWorld({ engine })
  try {
    await world.containers.check(TERMS)
    return false
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown)
  } finally {
    await world.close()
  }
}

/** Things of this machine that no code of a model may reach. */
export interface Canary {
  /** In a file, in the environment of this process, and in the answer of a server on the loopback. */
  readonly secret: string
  readonly file: string
  readonly folder: string
  readonly port: number
  /** Everything that was reached so far. */
  reached(): string[]
  close(): Promise<void>
}

export async function startCanary(): Promise<Canary> {
  const secret = 'canary-5f0c1d9a77'
  const folder = mkdtempSync(join(tmpdir(), 'canary-'))
  const file = join(folder, 'secret.txt')
  writeFileSync(file, secret)
  process.env['SANDBOX_CANARY'] = secret
  let hits = 0
  const server = createServer((_, response) => void response.end(secret))
  server.on('connection', () => {
    hits++
  })
  const { port } = await listening(server)
  return {
    secret,
    file,
    folder,
    port,
    reached() {
      const files = readdirSync(folder).filter(name => name !== 'secret.txt')
      return [...files.map(name => `made ${name}`), ...(hits > 0 ? ['connected'] : [])]
    },
    async close() {
      delete process.env['SANDBOX_CANARY']
      await new Promise(resolve => server.close(resolve))
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
