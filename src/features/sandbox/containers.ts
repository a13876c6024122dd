/**
 * All containers of this process: access, limits, lifetime, and the number of programs that run at once. Main thread.
 */
import type { Clock, Timer } from '../../base/clock.ts'
import { GatewayError } from '../../base/errors.ts'
import { randomText } from '../../base/ids.ts'
import type { Log } from '../../base/log/log.ts'
import { busy, FILES_MAX, notFound, notOffered, replyOf, withoutNetwork } from './container-replies.ts'
import type { EngineContainer, EngineLimits, SandboxEngine } from './engine.ts'
import { filePath } from './paths.ts'
import type { OpenTunnel } from './run-network.ts'
import { RunQueue } from './run-queue.ts'
import type { ContainerOwner, ContainerTerms, RunReply, RunRequest, SandboxCalls } from './sandbox.ts'
import type { SandboxSettings } from './settings.ts'

interface ContainersOptions {
  readonly settings: SandboxSettings
  /** For the files of containers, if the engine needs a folder. */
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
const NAME = /^[\w-]{1,40}$/
const SWEEP_MS = 5_000
/** Maximum calls that wait for one container. */
const PENDING_MAX = 16
const WAITING_FACTOR = 8

interface ContainerEntry {
  readonly key: string
  readonly workspace: string
  /** The allow-list as text; empty: no network. */
  readonly policy: string
  readonly engine: EngineContainer
  sleepMs: number
  usedMs: number
  /** Number of running and waiting calls. */
  pending: number
  /** Resolves with the end of the last call. */
  tail: Promise<unknown>
}

export function createContainers(options: ContainersOptions): Containers {
  return new HeldContainers(options)
}

class HeldContainers implements Containers {
  readonly #options: ContainersOptions
  /** Null: not requested yet, so its code is not loaded. It resolves to null if no engine is configured. */
  #engine: Promise<SandboxEngine | null> | null = null
  readonly #queue: RunQueue
  /** The least recently used first. */
  readonly #held = new Map<string, ContainerEntry>()
  /** Containers that are being created, by key. */
  readonly #opening = new Map<string, Promise<ContainerEntry>>()
  #refusal: Promise<string | null> | null = null
  readonly #ending = new AbortController()
  #sweep: Timer | null = null

  constructor(options: ContainersOptions) {
    const { running } = options.settings
    this.#options = options
    this.#queue = new RunQueue({
      running,
      runningPerWorkspace: Math.ceil(running / 2),
      waitingPerWorkspace: Math.ceil((running * WAITING_FACTOR) / 2),
      waiting: running * WAITING_FACTOR,
    })
  }

  get count(): number {
    return this.#held.size
  }

  async check(terms: ContainerTerms) {
    this.#checkNetwork(await this.#offered(), terms)
  }

  async open(owner: ContainerOwner, id: string | null, terms: ContainerTerms) {
    const engine = await this.#offered()
    if (id !== null && !NAME.test(id)) throw notFound()
    const known = id === null ? null : this.#find(owner, id)
    if (known !== null && known.policy !== policyOf(terms)) {
      throw new GatewayError('conflict', 'The network policy of a container cannot change while it exists')
    }
    this.#checkNetwork(engine, terms)
    if (known !== null) {
      known.sleepMs = terms.sleepAfterSeconds * 1000
      this.#use(known)
      return { id: id ?? '', isNew: false }
    }
    if (id?.startsWith(ID_PREFIX) === true) throw notFound()
    const name = id ?? `${ID_PREFIX}${randomText(ID_CHARS)}`
    const key = keyOf(owner, name)
    const opening = this.#opening.get(key) ?? this.#create(engine, owner, key, terms)
    this.#opening.set(key, opening)
    try {
      await opening
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
      const ending = AbortSignal.any([signal, this.#ending.signal])
      const queued = this.#queue.run(entry.workspace, ending, () => entry.engine.run(engineRun, ending))
      if (queued === null) throw busy()
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
    const written = await this.#inTurn(entry, () => entry.engine.write(relativePath, content))
    if (!written)
      throw new GatewayError('payload_too_large', 'The container is full: there is no room for the file')
    this.#makeRoom(entry.workspace, 0)
  }

  async end(owner: ContainerOwner, id: string) {
    const entry = this.#find(owner, id)
    if (entry !== null) await this.#end(entry)
  }

  async close() {
    this.#ending.abort(busy())
    this.#sweep?.cancel()
    const tails = Array.from(this.#held.values(), ({ tail }) => tail)
    await Promise.allSettled(tails)
    this.#held.clear()
    await (await this.#engine)?.close()
  }

  /** @throws GatewayError with the setting */
  async #offered(): Promise<SandboxEngine> {
    this.#engine ??= openEngine(this.#options)
    const engine = await this.#engine
    if (engine === null) throw notOffered('it is turned off')
    if (this.#ending.signal.aborted) throw busy()
    this.#refusal ??= engine.refusal().catch(thrown => {
      this.#options.log.fault('sandbox', 'sandbox failed', thrown)
      return 'its engine does not work on this machine'
    })
    const refusal = await this.#refusal
    if (refusal !== null) throw notOffered(refusal)
    return engine
  }

  /** @throws GatewayError with the engine or the setting */
  #checkNetwork({ name, holdsDomains }: SandboxEngine, { allowedDomains }: ContainerTerms): void {
    if (allowedDomains === null) return
    if (this.#options.settings.network === 'disabled')
      throw withoutNetwork(
        'Code in the sandbox has no network access on this gateway (setting tools.sandbox.network)',
      )
    if (!holdsDomains)
      throw withoutNetwork(
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
    if (!this.#makeRoom(workspace, 1 + this.#opening.size)) throw busy()
    const entry: ContainerEntry = {
      key,
      workspace,
      policy: policyOf(terms),
      engine: await engine.create(randomText(ID_CHARS), terms.allowedDomains),
      sleepMs: terms.sleepAfterSeconds * 1000,
      usedMs: 0,
      pending: 0,
      tail: Promise.resolve(),
    }
    this.#use(entry)
    this.#sweep ??= this.#options.clock.after(SWEEP_MS, () => this.#endSleeping())
    return entry
  }

  /**
   * Ends unused containers until there is room for `more`: of the workspace if it has too many, otherwise of the one
   * with the most. So no workspace can displace the containers of others.
   */
  #makeRoom(workspace: string, more: number): boolean {
    const { containers, containersPerWorkspace, storeMb } = this.#options.settings
    for (;;) {
      const all = [...this.#held.values()]
      const ofWorkspace = all.filter(each => each.workspace === workspace)
      const bytes = all.reduce((sum, { engine }) => sum + engine.bytes(), 0)
      const isOwnFull = ofWorkspace.length + Math.min(more, 1) > containersPerWorkspace
      const isFull = all.length + more > containers || bytes > storeMb * MIB
      if (!isOwnFull && !isFull) return true
      const from = isOwnFull ? workspace : largestOf(all, bytes > storeMb * MIB)
      const oldest = all.find(each => each.workspace === from && each.pending === 0)
      if (oldest === undefined) return false
      this.#remove(oldest)
    }
  }

  #find(owner: ContainerOwner, id: string): ContainerEntry | null {
    const entry = this.#held.get(keyOf(owner, id))
    if (entry === undefined) return null
    if (entry.pending > 0 || !this.#isAsleep(entry)) return entry
    this.#remove(entry)
    return null
  }

  #get(owner: ContainerOwner, id: string): ContainerEntry {
    const entry = this.#find(owner, id)
    if (entry === null) throw notFound()
    return entry
  }

  /** Runs one call at a time, in order. */
  async #inTurn<T>(entry: ContainerEntry, work: () => Promise<T>): Promise<T> {
    if (entry.pending >= PENDING_MAX) throw busy()
    entry.pending++
    this.#use(entry)
    const turn = entry.tail.then(work)
    entry.tail = turn.catch(() => undefined)
    try {
      return await turn
    } finally {
      entry.pending--
      if (this.#held.get(entry.key) === entry) this.#use(entry)
    }
  }

  #use(entry: ContainerEntry): void {
    entry.usedMs = this.#options.clock.monotonicMs()
    this.#held.delete(entry.key)
    this.#held.set(entry.key, entry)
  }

  #isAsleep({ usedMs, sleepMs }: ContainerEntry): boolean {
    return this.#options.clock.monotonicMs() - usedMs >= sleepMs
  }

  #endSleeping(): void {
    for (const entry of [...this.#held.values()]) {
      if (entry.pending === 0 && this.#isAsleep(entry)) this.#remove(entry)
    }
    this.#sweep =
      this.#held.size === 0 ? null : this.#options.clock.after(SWEEP_MS, () => this.#endSleeping())
  }

  #remove(entry: ContainerEntry): void {
    void this.#end(entry).catch((thrown: unknown) =>
      this.#options.log.fault('sandbox', 'sandbox failed', thrown),
    )
  }

  #end(entry: ContainerEntry): Promise<void> {
    this.#held.delete(entry.key)
    const ended = entry.tail.then(() => entry.engine.end())
    entry.tail = ended
    return ended
  }
}

async function openEngine({
  settings,
  folder,
  clock,
  openTunnel: open,
}: ContainersOptions): Promise<SandboxEngine | null> {
  const limits: EngineLimits = {
    cpuSeconds: settings.cpuSeconds,
    memoryBytes: settings.memoryMb * MIB,
    fileBytes: settings.fileMb * MIB,
    files: FILES_MAX,
  }
  const openTunnel = settings.network === 'disabled' ? null : open
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

function largestOf(all: readonly ContainerEntry[], byBytes: boolean): string {
  const sums = new Map<string, number>()
  for (const { workspace, engine } of all) {
    sums.set(workspace, (sums.get(workspace) ?? 0) + (byBytes ? engine.bytes() : 1))
  }
  const [first] = [...sums].toSorted(([, bytesA], [, bytesB]) => bytesB - bytesA)
  return first?.[0] ?? ''
}

function policyOf({ allowedDomains }: ContainerTerms): string {
  return allowedDomains === null ? '' : JSON.stringify(allowedDomains.toSorted())
}
