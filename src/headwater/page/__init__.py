"""The web page: what a log holds and how it fares, for people with a browser.

    looking.py       one look at a log, shared by everybody who asks within a second, and the hour before it
    document.py      a look as one JSON document, with what its reader may see
    assets.py        the page itself: page.html, page.css, page.js, served as they are or written into one file

PROMISE  It reads only.  A document is bounded, however many topics, groups and landings there are.
NOT HERE Who may see what: whoever asks brings a Sight.  HTTP: server/web_page.py.  Files: cli/web_page.py.
"""
