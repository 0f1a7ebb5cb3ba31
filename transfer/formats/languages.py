"""Words of German, French, Spanish, Italian, Portuguese and Dutch in notes and tables, as `fold` writes them.

Words that mean something else in English are left out: `art`, `data`, `resume`. Does not use the database.
"""

# Field of a memory -> names of columns and of fields in front matter.
FIELD_WORDS = {
    "content": (
        "inhalt notiz notizen beschreibung entscheidung texte contenu texto contenido nota notas descripcion "
        "testo contenuto descrizione conteudo descricao decisao decisione inhoud tekst notitie beschrijving "
        "besluit begrundung erlauterung anmerkung bemerkung kommentar justification commentaire justificacion "
        "comentario motivazione giustificazione commento justificativa motivering toelichting opmerking"
    ),
    "title": (
        "titel titre titulo titolo betreff bezeichnung sujet objet asunto oggetto assunto onderwerp aufgabe "
        "tache tarea tarefa taak"
    ),
    "summary": "zusammenfassung kurzfassung resumen riassunto sintesi resumo samenvatting",
    "type": "typ tipo soort",
    "project": "projekt projet proyecto progetto projeto",
    "tags": (
        "schlagworter schlagworte stichworter stichworte mots_cles etiquettes etiquetas palabras_clave "
        "etichette parole_chiave palavras_chave trefwoorden"
    ),
    "categories": "kategorie kategorien categorie categoria categorias bereich themenbereich domaine gebied ambito",
    "authors": (
        "autor autoren autorin verfasser ersteller auteur auteurs auteure autora autores autore autori verantwortlich "
        "verantwortliche zustandig responsable responsabile responsavel verantwoordelijke"
    ),
    "created_at": (
        "datum fecha erstellt erstellt_am angelegt cree cree_le creado creado_el creato creato_il criado "
        "criado_em aangemaakt aangemaakt_op entschieden_am"
    ),
    "updated_at": (
        "geandert geandert_am aktualisiert modifie modifie_le modificado actualizado modificato aggiornato "
        "atualizado gewijzigd bijgewerkt"
    ),
    "valid_from": "gultig_ab gultig_von valable_a_partir_du valido_desde valido_da geldig_vanaf",
    "valid_to": "gultig_bis valable_jusqu'au valido_hasta valido_ate valido_fino_a geldig_tot",
    "state": "statut estado estatus stato",
    "supersedes": "ersetzt remplace sustituye reemplaza sostituisce substitui vervangt",
    "superseded_by": (
        "ersetzt_durch abgelost_durch remplace_par sustituido_por sostituito_da substituido_por vervangen_door"
    ),
}
FIELD_OF_WORD = {word: field for field, words in FIELD_WORDS.items() for word in words.split()}
# State -> words; `_` joins those that are several.
STATE_WORDS = {
    "active": (
        "akzeptiert angenommen beschlossen entschieden genehmigt erledigt fertig abgeschlossen umgesetzt "
        "aktiv gultig in_arbeit in_bearbeitung accepte acceptee approuve approuvee adopte adoptee termine "
        "terminee fait en_cours actif aceptado aceptada aprobado aprobada hecho terminado en_curso "
        "en_progreso activo vigente accettato accettata approvato approvata fatto completato in_corso attivo "
        "aceito aceita aceite aprovado aprovada feito concluido em_andamento ativo geaccepteerd aanvaard "
        "goedgekeurd klaar voltooid bezig actief"
    ),
    "proposed": (
        "vorgeschlagen vorschlag entwurf offen geplant in_prufung zur_diskussion nicht_begonnen "
        "zuruckgestellt propose proposee brouillon ouvert prevu pas_commence a_faire en_attente propuesto "
        "propuesta borrador abierto pendiente sin_empezar proposto proposta bozza aperto da_fare in_sospeso "
        "rascunho aberto nao_iniciado voorgesteld voorstel concept open gepland niet_begonnen"
    ),
    "archived": (
        "abgelehnt verworfen veraltet uberholt archiviert zuruckgezogen abgebrochen ungultig rejete rejetee "
        "refuse refusee obsolete perime perimee archive archivee annule annulee abandonnee rechazado "
        "rechazada obsoleto obsoleta descartado archivado cancelado rifiutato rifiutata respinto respinta "
        "deprecato archiviato annullato rejeitado rejeitada recusado arquivado afgewezen verworpen verouderd "
        "gearchiveerd geannuleerd vervallen"
    ),
    "superseded": (
        "ersetzt abgelost remplace remplacee sustituido sustituida reemplazado reemplazada sostituito "
        "sostituita substituido substituida vervangen"
    ),
}
STATE_OF_WORD = {word.replace("_", " "): state for state, words in STATE_WORDS.items() for word in words.split()}
# Words before the name of a successor, as a pattern.
REPLACED_BY = (
    r"(?:ersetzt|abgelöst)\s+durch|remplacée?\s+par|(?:sustituid|reemplazad)[oa]\s+por|sostituit[oa]\s+da|"
    r"substituíd[oa]\s+por|vervangen\s+door"
)
# Names of folders and tags -> the type of their notes.
TYPE_WORDS = {
    "decision": (
        "entscheidung entscheidungen beschlusse decisiones decisione decisioni decisao decisoes besluit besluiten"
    ),
    "meeting": (
        "besprechung besprechungen protokolle reunion reunions reuniones riunione riunioni reuniao reunioes "
        "vergadering vergaderingen notulen"
    ),
    "person": "personen personne personnes persona personas persone pessoas contactos contatti contatos",
    "journal": "tagebuch tagesnotizen journaux diario dagboek",
    "idea": "idee ideen idees ideia ideias ideeen",
    "task": "aufgabe aufgaben taches tareas attivita tarefas taken",
}
# Headings of decision records: that of the decision -> others, of which one must be there.
DECISION_HEADINGS = {
    "entscheidung": ("kontext", "status", "konsequenzen", "folgen"),
    "décision": ("contexte", "statut", "conséquences"),
    "decisión": ("contexto", "estado", "consecuencias"),
    "decisione": ("contesto", "stato", "conseguenze"),
    "decisão": ("contexto", "status", "consequências"),
    "besluit": ("context", "status", "gevolgen"),
}
STATUS_HEADINGS = "status|statut|estado|estatus|stato"
DATE_LABELS = "date|datum|fecha|data"
