/** The `auto` engine: uses the first engine that works on this machine. Main thread. */
import type { SandboxEngine } from './engine.ts'

/** @param engines at least one, the best first */
export function createFirstEngine(engines: readonly SandboxEngine[]): SandboxEngine {
  let chosenEngine: SandboxEngine | null = null
  return {
    get name() {
      return chosenEngine?.name ?? 'auto'
    },
    get supportsDomains() {
      return chosenEngine?.supportsDomains === true
    },
    async refusal() {
      const reasons: string[] = []
      for (const engine of engines) {
        const reason = await engine.refusal()
        if (reason === null) {
          chosenEngine = engine
          return null
        }
        reasons.push(reason)
      }
      return `no engine works on this machine: ${reasons.join('; ')}`
    },
    create(id, allowedDomains) {
      if (chosenEngine === null) throw new TypeError('no engine has been chosen')
      return chosenEngine.create(id, allowedDomains)
    },
    async close() {
      await Promise.all(engines.map(engine => engine.close()))
    },
  }
}
