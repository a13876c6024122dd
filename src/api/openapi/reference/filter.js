/** The filter field of the reference page: keeps only the entries in the contents that match every typed word. */

const filterPlace = document.getElementById('filter-place')
const field = document.getElementById('filter')
const count = document.getElementById('filter-count')
const groups = [...document.querySelectorAll('nav details')].map(group => ({
  group,
  wasOpen: false,
  links: [...group.querySelectorAll('li')].map(link => ({ link, text: link.dataset.words ?? '' })),
}))

let isFiltered = false

function filter() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean)
  let foundCount = 0
  for (const entry of groups) {
    const { group, links } = entry
    if (!isFiltered) entry.wasOpen = group.open
    let inGroup = 0
    for (const { link, text } of links) {
      const isMatch = words.every(word => text.includes(word))
      link.hidden = !isMatch
      if (isMatch) inGroup++
    }
    group.hidden = inGroup === 0
    group.open = words.length > 0 ? inGroup > 0 : entry.wasOpen
    foundCount += inGroup
  }
  isFiltered = words.length > 0
  count.textContent = words.length === 0 ? '' : `${foundCount} found`
}

filterPlace.hidden = false
field.addEventListener('input', filter)
// Browsers may restore a typed filter after a reload.
filter()
