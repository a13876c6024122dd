/**
 * All containers of this process: access, limits, lifetime, and the number of programs that run at once. Main thread.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { randomText } from '../../base/ids.ts'
import type { Log } from '../../base/log/log.ts'
import {
  busyError,
  MAX_ENTRIES,
  noNetworkError,
  notFoundError,
  notOfferedError,
  replyOf,
} from './container-replies.ts'
import type { EngineContainer, EngineLimits, SandboxEngine } from './engine.ts'
import { filePath } from './paths.ts'
import type { OpenTunnel } from './run-network.ts'
import { RunQueue } from './run-queue.ts'
import type { ContainerOwner, ContainerTerms, RunReply, RunRequest, SandboxCalls } from './sandbox.ts'
import type { SandboxSettings } from './settings.ts'

interface ContainersOptions {
  readonly settings: SandboxSettings
  /** The folder for the files of containers, if the engine needs one. */
  readonly folder: string
  readonly clock: Clock
  readonly log: Pick<Log, 'fault'>
  /** Connects code to servers of its allow-list. */
  readonly openTunnel: OpenTunnel
}

export interface Containers extends SandboxCalls {
  /** Number of containers that exist now. */
  readonly count: number
  close(): Promise<void>
}

const MIB = 1024 * 1024
/** Prefix of ids from the gateway; callers must not use it. */
const ID_PREFIX = 'cntr_'
const ID_CHARS = 32
const CONTAINER_NAME = /^[\w-]{1,40}$/
const SWEEP_INTERVAL_MS = 5_000
/** Maximum calls that wait for one container. */
const MAX_PENDING_CALLS = 16
const WAITING_PER_RUNNING = 8

interface ContainerEntry {
  readonly key: string
  readonly workspace: string
  /** The allow-list as text; empty without a network. */
  readonly policy: string
  readonly engine: EngineContainer
  sleepMs: number
  usedMs: number
  /** Number of running and waiting calls. */
  pending: number
  /** Resolves with the end of the last call. */
  lastCall: Promise<unknown>
}

export function createContainers(options: ContainersOptions): Containers {
  return new OpenContainers(options)
}

class OpenContainers implements Containers {
  readonly #options: ContainersOptions
  /** Null before the first request, so that its code is not loaded. It resolves to null if no engine is configured. */
  #engine: Promise<SandboxEngine | null> | null = null
  readonly #queue: RunQueue
  /** The least recently used first. */
  readonly #entries = new Map<string, ContainerEntry>()
  /** Containers that are being created, by key. */
  readonly #opening = new Map<string, Promise<ContainerEntry>>()
  #refusal: Promise<string | null> | null = null
  readonly #closing = new AbortController()
  #sweep: Timer | null = null

  constructor(options: ContainersOptions) {
    const { running } = options.settings
    this.#options = options
    this.#queue = new RunQueue({
      running,
      runningPerWorkspace: Math.ceil(running / 2),
      waitingPerWorkspace: Math.ceil((running * WAITING_PER_RUNNING) / 2),
      maxWaiting: running * WAITING_PER_RUNNING,
    })
  }

  get count(): number {
    return this.#entries.size
  }

  async check(terms: ContainerTerms) {
    this.#checkNetwork(await this.#workingEngine(), terms)
  }

  async open(owner: ContainerOwner, id: string | null, terms: ContainerTerms) {
    const engine = await this.#workingEngine()
    if (id !== null && !CONTAINER_NAME.test(id)) throw notFoundError()
    const existing = id === null ? null : this.#find(owner, id)
    if (existing !== null) checkPolicy(existing, terms)
    this.#checkNetwork(engine, terms)
    if (existing !== null) {
      existing.sleepMs = terms.sleepAfterSeconds * 1000
      this.#use(existing)
      return { id: id ?? '', isNew: false }
    }
    if (id?.startsWith(ID_PREFIX) === true) throw notFoundError()
    const name = id ?? `${ID_PREFIX}${randomText(ID_CHARS)}`
    const key = keyOf(owner, name)
    const opening = this.#opening.get(key) ?? this.#create(engine, owner, key, terms)
    this.#opening.set(key, opening)
    try {
      // Another call may have begun to create it, with other terms.
      checkPolicy(await opening, terms)
    } finally {
      this.#opening.delete(key)
    }
    return { id: name, isNew: true }
  }

  async run(owner: ContainerOwner, id: string, run: RunRequest, signal: AbortSignal): Promise<RunReply> {
    const { timeoutMs, outputBytes, ...limits } = this.#options.settings
    const engineRun = {
      codes: run.codes,
      timeoutMs: Math.max(1, Math.min(run.timeoutMs ?? timeoutMs, timeoutMs)),
      outputBytes,
    }
    const entry = this.#get(owner, id)
    const result = await this.#inTurn(entry, async () => {
      const ended = AbortSignal.any([signal, this.#closing.signal])
      const queued = this.#queue.run(entry.workspace, ended, () => entry.engine.run(engineRun, ended))
      if (queued === null) throw busyError()
      return await queued
    })
    this.#makeRoom(entry.workspace, 0)
    return replyOf(result, run, limits)
  }

  async list(owner: ContainerOwner, id: string) {
    const entry = this.#get(owner, id)
    const files = await this.#inTurn(entry, () => entry.engine.list())
    return files.toSorted((a, b) => b.changedMs - a.changedMs)
  }

  async read(owner: ContainerOwner, id: string, path: string) {
    const entry = this.#get(owner, id)
    const relativePath = filePath(path)
    return relativePath === null ? null : await this.#inTurn(entry, () => entry.engine.read(relativePath))
  }

  async write(owner: ContainerOwner, id: string, path: string, content: Uint8Array) {
    const entry = this.#get(owner, id)
    const relativePath = filePath(path)
    if (relativePath === null)
      throw new GatewayError('invalid_request', 'The path of the file must be below /mnt/data')
    const isWritten = await this.#inTurn(entry, () => entry.engine.write(relativePath, content))
    if (!isWritten)
      throw new GatewayError('payload_too_large', 'The container is full: there is no room for the file')
    this.#makeRoom(entry.workspace, 0)
  }

  async end(owner: ContainerOwner, id: string) {
    const entry = this.#find(owner, id)
    if (entry !== null) await this.#end(entry)
  }

  async close() {
    this.#closing.abort(busyError())
    this.#sweep?.cancel()
    const tails = Array.from(this.#entries.values(), ({ lastCall }) => lastCall)
    await Promise.allSettled(tails)
    this.#entries.clear()
    await (await this.#engine)?.close()
  }

  /** @throws GatewayError with the setting */
  async #workingEngine(): Promise<SandboxEngine> {
    this.#engine ??= openEngine(this.#options)
    const engine = await this.#engine
    if (engine === null) throw notOfferedError('it is turned off')
    if (this.#closing.signal.aborted) throw busyError()
    this.#refusal ??= engine.refusal().catch(thrown => {
      this.#options.log.fault('sandbox', 'sandbox failed', thrown)
      return 'its engine does not work on this machine'
    })
    const refusal = await this.#refusal
    if (refusal !== null) throw notOfferedError(refusal)
    return engine
  }

  /** @throws GatewayError with the engine or the setting */
  #checkNetwork({ name, supportsDomains }: SandboxEngine, { allowedDomains }: ContainerTerms): void {
    if (allowedDomains === null) return
    if (this.#options.settings.network === 'disabled')
      throw noNetworkError(
        'Code in the sandbox has no network access on this gateway (setting tools.sandbox.network)',
      )
    if (!supportsDomains)
      throw noNetworkError(
        `The ${name} sandbox engine has no network access; only the bubblewrap engine supports allow-lists (setting tools.sandbox.engine)`,
      )
  }

  async #create(
    engine: SandboxEngine,
    owner: ContainerOwner,
    key: string,
    terms: ContainerTerms,
  ): Promise<ContainerEntry> {
    const workspace = workspaceOf(owner)
    if (!this.#makeRoom(workspace, 1 + this.#opening.size)) throw busyError()
    const entry: ContainerEntry = {
      key,
      workspace,
      policy: policyOf(terms),
      engine: await engine.create(randomText(ID_CHARS), terms.allowedDomains),
      sleepMs: terms.sleepAfterSeconds * 1000,
      usedMs: 0,
      pending: 0,
      lastCall: Promise.resolve(),
    }
    this.#use(entry)
    this.#sweep ??= this.#options.clock.after(SWEEP_INTERVAL_MS, () => this.#endSleeping())
    return entry
  }

  /**
   * Ends unused containers until there is room for `added` more: containers of this workspace if it has too many,
   * otherwise of the workspace with the most. So a workspace displaces no others by having many containers.
   */
  #makeRoom(workspace: string, added: number): boolean {
    const { containers, containersPerWorkspace, storeMb } = this.#options.settings
    for (;;) {
      const entries = [...this.#entries.values()]
      const ofWorkspace = entries.filter(entry => entry.workspace === workspace)
      const bytes = entries.reduce((sum, { engine }) => sum + engine.bytes(), 0)
      const isOwnFull = ofWorkspace.length + Math.min(added, 1) > containersPerWorkspace
      const isFull = entries.length + added > containers || bytes > storeMb * MIB
      if (!isOwnFull && !isFull) return true
      const fullWorkspace = isOwnFull ? workspace : largestOf(entries, bytes > storeMb * MIB)
      const oldest = entries.find(entry => entry.workspace === fullWorkspace && entry.pending === 0)
      if (oldest === undefined) return false
      this.#remove(oldest)
    }
  }

  #find(owner: ContainerOwner, id: string): ContainerEntry | null {
    const entry = this.#entries.get(keyOf(owner, id))
    if (entry === undefined) return null
    if (entry.pending > 0 || !this.#isAsleep(entry)) return entry
    this.#remove(entry)
    return null
  }

  #get(owner: ContainerOwner, id: string): ContainerEntry {
    const entry = this.#find(owner, id)
    if (entry === null) throw notFoundError()
    return entry
  }

  /** Runs one call at a time, in order. */
  async #inTurn<T>(entry: ContainerEntry, work: () => Promise<T>): Promise<T> {
    if (entry.pending >= MAX_PENDING_CALLS) throw busyError()
    entry.pending++
    this.#use(entry)
    const turn = entry.lastCall.then(work)
    entry.lastCall = turn.catch(() => undefined)
    try {
      return await turn
    } finally {
      entry.pending--
      if (this.#entries.get(entry.key) === entry) this.#use(entry)
    }
  }

  #use(entry: ContainerEntry): void {
    entry.usedMs = this.#options.clock.monotonicMs()
    this.#entries.delete(entry.key)
    this.#entries.set(entry.key, entry)
  }

  #isAsleep({ usedMs, sleepMs }: ContainerEntry): boolean {
    return this.#options.clock.monotonicMs() - usedMs >= sleepMs
  }

  #endSleeping(): void {
    for (const entry of [...this.#entries.values()]) {
      if (entry.pending === 0 && this.#isAsleep(entry)) this.#remove(entry)
    }
    this.#sweep =
      this.#entries.size === 0
        ? null
        : this.#options.clock.after(SWEEP_INTERVAL_MS, () => this.#endSleeping())
  }

  #remove(entry: ContainerEntry): void {
    void this.#end(entry).catch((thrown: unknown) =>
      this.#options.log.fault('sandbox', 'sandbox failed', thrown),
    )
  }

  #end(entry: ContainerEntry): Promise<void> {
    this.#entries.delete(entry.key)
    const ended = entry.lastCall.then(() => entry.engine.end())
    entry.lastCall = ended
    return ended
  }
}

async function openEngine({
  settings,
  folder,
  clock,
  openTunnel: tunnel,
}: ContainersOptions): Promise<SandboxEngine | null> {
  const limits: EngineLimits = {
    cpuSeconds: settings.cpuSeconds,
    memoryBytes: settings.memoryMb * MIB,
    fileBytes: settings.fileMb * MIB,
    files: MAX_ENTRIES,
  }
  const openTunnel = settings.network === 'disabled' ? null : tunnel
  const embedded = async () => (await import('./embedded/embedded.ts')).createEmbedded(limits, clock)
  const bubblewrap = async () =>
    (await import('./bubblewrap.ts')).createBubblewrap({ limits, folder, clock, openTunnel })
  switch (settings.engine) {
    case 'none':
      return null
    case 'auto': {
      const { createFirstEngine } = await import('./first-engine.ts')
      return createFirstEngine([await embedded(), await bubblewrap()])
    }
    case 'embedded':
      return await embedded()
    case 'bubblewrap':
      return await bubblewrap()
    case 'docker':
      return (await import('./docker.ts')).createDocker({ limits, folder, clock })
  }
}

function workspaceOf({ organizationId, workspaceId }: ContainerOwner): string {
  return JSON.stringify([organizationId, workspaceId])
}

/** Ids contain no line break, so ids of different workspaces are different. */
function keyOf(owner: ContainerOwner, id: string): string {
  return `${workspaceOf(owner)}\n${id}`
}

function largestOf(entries: readonly ContainerEntry[], byBytes: boolean): string {
  const totals = new Map<string, number>()
  for (const { workspace, engine } of entries) {
    totals.set(workspace, (totals.get(workspace) ?? 0) + (byBytes ? engine.bytes() : 1))
  }
  const [first] = [...totals].toSorted(([, bytesA], [, bytesB]) => bytesB - bytesA)
  return first?.[0] ?? ''
}

/** @throws GatewayError `conflict` */
function checkPolicy({ policy }: ContainerEntry, terms: ContainerTerms): void {
  if (policy !== policyOf(terms))
    throw new GatewayError('conflict', 'The network policy of a container cannot change while it exists')
}

function policyOf({ allowedDomains }: ContainerTerms): string {
  return allowedDomains === null ? '' : JSON.stringify(allowedDomains.toSorted())
}
