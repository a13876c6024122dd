/** The search of the guide. Works offline: the index is a file next to this script. */
import MiniSearch from './minisearch.js'
import { searched, TERMS } from './search-terms.js'

const RESULTS_MAX = 12
const place = document.getElementById('search')
const words = document.getElementById('words')
const found = document.getElementById('found')
const results = document.getElementById('results')

let loading = null
function load() {
  loading ??= fetch(new URL('search.json', import.meta.url))
    .then(reply => reply.text())
    .then(text => MiniSearch.loadJSON(text, TERMS))
  return loading
}

async function search() {
  const asked = words.value.trim()
  if (asked === '') return show([], '')
  let index
  try {
    index = await load()
  } catch {
    loading = null
    return show([], 'The search index could not be loaded.')
  }
  // More was typed in the meantime.
  if (asked !== words.value.trim()) return
  const all = searched(index, asked)
  show(all.slice(0, RESULTS_MAX), all.length === 0 ? 'Nothing found' : `${all.length} found`)
}

function show(hits, text) {
  found.textContent = text
  results.replaceChildren(
    ...hits.map(({ page, id, heading, title }) => {
      const link = document.createElement('a')
      link.href = new URL(`../${page}#${id.slice(id.indexOf('#') + 1)}`, import.meta.url)
      link.textContent = heading === title ? title : `${title}: ${heading}`
      const item = document.createElement('li')
      item.append(link)
      return item
    }),
  )
}

place.hidden = false
words.addEventListener('focus', () => void load().catch(() => undefined), { once: true })
words.addEventListener('input', () => void search())
addEventListener('keydown', event => {
  if (event.key === 'Escape') show([], '')
  else if (event.key === '/' && document.activeElement !== words && !event.ctrlKey && !event.metaKey) {
    event.preventDefault()
    words.focus()
  }
})
