/** Names of API keys and workspaces by id, for views that receive only ids. */
import { useEffect, useState } from './html.js'

const PAGE_SIZE = 100
/** Beyond 1,000 of each, a view shows ids. */
const MAX_PAGES = 10

const NO_NAMES = { keys: new Map(), workspaces: new Map(), isKnown: false, version: null }

/** @returns keys by hash and workspaces by id, each with its record; empty until loaded */
export function useNames(calls, version = 0) {
  const [names, setNames] = useState(NO_NAMES)
  useEffect(() => {
    const controller = new AbortController()
    const { signal } = controller
    Promise.all([
      loadAll(calls, 'keys', { include_disabled: true }, signal),
      loadAll(calls, 'workspaces', {}, signal),
    ]).then(
      ([keys, workspaces]) => {
        if (signal.aborted) return
        setNames({
          keys: new Map(keys.map(key => [key.hash, key])),
          workspaces: new Map(workspaces.map(workspace => [workspace.id, workspace])),
          isKnown: true,
          version,
        })
      },
      // Without names, ids are shown.
      () => undefined,
    )
    return () => controller.abort()
  }, [calls, version])
  return names
}

async function loadAll(calls, path, query, signal) {
  const records = []
  for (let page = 0; page < MAX_PAGES; page++) {
    const { data, total_count: total } = await calls.api('GET', path, {
      query: { ...query, limit: PAGE_SIZE, offset: page * PAGE_SIZE },
      signal,
    })
    records.push(...data)
    if (records.length >= total || data.length === 0) break
  }
  return records
}

/** The name of a key, or the beginning of its hash. */
export function keyName(names, hash) {
  if (hash === null || hash === undefined) return '–'
  return names.keys.get(hash)?.name ?? `${hash.slice(0, 8)}… (deleted)`
}

export function workspaceName(names, id) {
  if (id === null || id === undefined) return '–'
  return names.workspaces.get(id)?.name ?? id
}

/**
 * The default guardrail of a workspace is shown with the workspace's name: its own name contains an id that nobody
 * recognizes.
 */
export function guardrailName(names, { name, is_workspace_default: isDefault, workspace_id: id }) {
  return isDefault ? `Default of ${workspaceName(names, id)}` : name
}
